"""`varopt fit` and `varopt predict`: every format and model, the file in between, and every refusal."""

import bz2
import csv
import gzip
import json
import lzma
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import mean_pinball_loss

from varopt import learn
from varopt.cli import _tables, main  # what counts as large is changed
from varopt.cli._models import MODELS, FittedModel  # what the command fits

NAMES = ["rooms", "age", "tax", "area"]


@pytest.fixture
def data(rng):
    X = np.round(rng.standard_normal((80, 4)), 3)
    y = np.round(X @ [2.0, 0.0, -1.0, 0.5] + 1.0 + 0.3 * rng.standard_normal(80), 3)
    return X, y


@pytest.fixture
def prices(data, tmp_path):
    """A CSV file with four features, a price and a class that is text."""
    return write_csv(tmp_path / "prices.csv", data)


def write_csv(path, data, delimiter=","):
    X, y = data
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow([*NAMES, "price", "dear"])
        writer.writerows(
            [*map(str, row), str(value), "yes" if value > 1 else "no"] for row, value in zip(X, y, strict=True)
        )
    return path


def fitted(arguments, path):
    assert main(["fit", *map(str, arguments), "--save", str(path)]) == 0
    return FittedModel.load(path)


REGRESSION = ["--target", "price", "--drop", "dear"]
CLASSES = ["--target", "dear", "--drop", "price"]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_its_estimator(name, prices, data, tmp_path, capsys):
    kind = MODELS[name]
    model = fitted([prices, "--model", name, *(CLASSES if kind.classifier else REGRESSION)], tmp_path / "m.json")
    X, y = data
    y = np.where(y > 1, "yes", "no") if kind.classifier else y
    estimator = getattr(learn, kind.estimator)(**kind.defaults).fit(X, y)
    np.testing.assert_allclose(np.ravel(model.coef), np.ravel(estimator.coef_), rtol=1e-12)
    np.testing.assert_array_equal(
        model.predict(X), estimator.predict(X)
    ) if kind.classifier else np.testing.assert_allclose(model.predict(X), estimator.predict(X), rtol=1e-9)
    assert model.lower[0] <= model.objective[0] <= model.lower[0] + 1e-9 * max(1.0, model.objective[0])
    printed = capsys.readouterr().out
    assert f"model        {name} ({kind.estimator}" in printed
    assert "proof        DualGap" in printed


def test_parameters_are_numbers_words_and_truths(prices, tmp_path):
    settings = ["--set", "quantile=0.9", "--set", "fit_intercept=false", "--set", "penalty=l2", "--tol", "1e-6"]
    model = fitted([prices, "--model", "quantile", *REGRESSION, *settings], tmp_path / "m.json")
    assert model.parameters == {"alpha": 0.0, "quantile": 0.9, "fit_intercept": False, "penalty": "l2", "tol": 1e-6}
    assert model.intercept == [0.0]


def test_features_are_chosen_by_name(prices, tmp_path):
    model = fitted([prices, "--model", "lad", "--target", "price", "--features", "tax, rooms"], tmp_path / "m.json")
    assert model.features == ["tax", "rooms"]
    assert model.coef[0][0] == pytest.approx(-1.0, abs=0.5)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters(delimiter, data, tmp_path):
    path = write_csv(tmp_path / "d.csv", data, delimiter)
    assert fitted([path, "--model", "lad", *REGRESSION], tmp_path / "m.json").features == NAMES


def test_every_format_gives_the_same_model(prices, data, tmp_path):
    expected = fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    X, y = data
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({**dict(zip(NAMES, X.T, strict=True)), "price": y}), tmp_path / "d.parquet")
    same = fitted([tmp_path / "d.parquet", "--model", "lad", "--target", "price"], tmp_path / "p.json")
    np.testing.assert_array_equal(same.coef, expected.coef)
    dump_svmlight_file(X, y, str(tmp_path / "d.libsvm"), zero_based=False)
    sparse = fitted([tmp_path / "d.libsvm", "--model", "lad"], tmp_path / "s.json")
    np.testing.assert_allclose(sparse.coef, expected.coef, rtol=1e-6)
    assert (sparse.target, sparse.features) == ("label", ["1", "2", "3", "4"])
    assert (
        main(["predict", str(tmp_path / "s.json"), str(tmp_path / "d.libsvm"), "--output", str(tmp_path / "o.csv")])
        == 0
    )


def test_predictions_find_columns_by_name_and_report_their_error(prices, data, tmp_path, capsys):
    model = fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    capsys.readouterr()
    X, y = data
    shuffled = tmp_path / "new.csv"
    with shuffled.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["price", *NAMES[::-1]])
        writer.writerows(np.column_stack([y, X[:, ::-1]]).tolist())
    assert main(["predict", str(tmp_path / "m.json"), str(shuffled)]) == 0
    printed = capsys.readouterr()
    header, *lines = printed.out.splitlines()
    assert header == "prediction"
    np.testing.assert_array_equal([float(line) for line in lines], model.predict(X))  # they read back exactly
    assert "mean absolute error" in printed.err


def test_classes_keep_their_names(prices, tmp_path, capsys):
    fitted([prices, "--model", "svm", *CLASSES], tmp_path / "m.json")
    assert main(["predict", str(tmp_path / "m.json"), str(prices), "--output", str(tmp_path / "o.csv")]) == 0
    assert set((tmp_path / "o.csv").read_text().splitlines()[1:]) == {"yes", "no"}
    assert "of 80 rows are classified wrongly" in capsys.readouterr().err


def test_more_than_two_classes(rng, tmp_path):
    X = np.concatenate([rng.standard_normal((30, 2)) + centre for centre in ([5, 0], [-5, 0], [0, 5])])
    labels = np.repeat(["a", "b", "c"], 30)
    path = tmp_path / "d.csv"
    path.write_text("x,y,class\n" + "\n".join(f"{a},{b},{c}" for (a, b), c in zip(X, labels, strict=True)) + "\n")
    model = fitted([path, "--model", "svm", "--target", "class"], tmp_path / "m.json")
    assert len(model.coef) == 3
    assert np.mean(model.predict(X) == labels) > 0.95


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_plots_and_coefficients_are_written(ending, prices, tmp_path):
    pytest.importorskip("matplotlib")
    plot, table = tmp_path / f"fit.{ending}", tmp_path / "coefficients.csv"
    arguments = [*(CLASSES if ending == "png" else REGRESSION), "--plot", plot, "--coefficients", table]
    fitted([prices, "--model", "svm" if ending == "png" else "lasso", *arguments], tmp_path / "m.json")
    assert plot.stat().st_size > 1000
    assert [line.partition(",")[0] for line in table.read_text().splitlines()] == ["feature", "intercept", *NAMES]


def test_a_model_is_plain_json(prices, tmp_path):
    fitted([prices, "--model", "lasso", *REGRESSION], tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    assert content["format"] == "varopt model"
    assert {"coef", "intercept", "objective", "lower", "certificate", "features", "target"} <= set(content)


# What is refused, each in a sentence ---------------------------------------------------------------------------------


def refusal(arguments, capsys):
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nonsense", *REGRESSION], "there is no model 'nonsense'; choose from quantile, lad"),
        (["--model", "lad"], "--target has to name the column to explain"),
        (["--model", "lad", "--no-header"], "Without a header columns are 1, 2, ..."),
        (
            ["--model", "lad", "--target", "cost"],
            "there is no column 'cost'; the columns are rooms, age, tax, area, price",
        ),
        (["--model", "lad", "--target", "price", "--features", "room"], "there is no column 'room'"),
        (["--model", "lad", "--target", "price", "--features", "tax,price"], "column 'price' is the target"),
        (["--model", "lad", "--target", "price", "--features", "tax,age,tax"], "column 'tax' is named twice"),
        (["--model", "lad", "--target", "price", "--drop", "deer"], "there is no column 'deer'"),
        (["--model", "lad", "--target", "price"], "line 2: column 'dear' has to be a number; got "),
        (["--model", "lad", *REGRESSION, "--set", "alfa=1"], "model lad has no parameter 'alfa'; it has alpha"),
        (["--model", "lad", *REGRESSION, "--set", "alpha"], "--set takes NAME=VALUE; got 'alpha'"),
        (["--model", "lad", *REGRESSION, "--plot", "fit.doc"], "--plot takes a name that ends in .svg, .png or .pdf"),
        (["--model", "lasso", *REGRESSION, "--set", "alpha=-1"], "'alpha' parameter of Lasso must be"),
        (["--model", "lad", "--target", "price", "--drop", "rooms,age,tax,area,dear"], "no feature is left"),
    ],
)
def test_refused_arguments(arguments, message, prices, capsys):
    assert message in refusal(["fit", prices, *arguments], capsys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("a,price\n", "there is no row below the header"),
        ("1,2\n3,4\n", "the first line has to name the columns; it holds numbers: 1, 2"),
        ("a,a,price\n1,2,3\n", "two columns are called 'a'"),
        ("a,price\n1,2\n,3\n", "line 3: column 'a' has no value"),
        ("a,price\n1,2\n2\n", "line 3: column 'price' has no value"),
        ("a,price\n1,2\nfew,3\n", "line 3: column 'a' has to be a number; got 'few'"),
        ("a,price\n1,2\nnan,3\n", "line 3: column 'a' has no value (nan)"),
        ('a,price\n"1,234",2\n', "has commas: '1,234'. If they part thousands, take them out; if one stands before"),
    ],
)
def test_refused_files(content, message, tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_text(content)
    assert message in refusal(["fit", path, "--model", "lad", "--target", "price"], capsys)


def test_one_class_is_refused(tmp_path, capsys):
    (tmp_path / "d.csv").write_text("a,kind\n1,x\n2,x\n")
    assert "one class only" in refusal(["fit", tmp_path / "d.csv", "--model", "svm", "--target", "kind"], capsys)


def test_refused_formats(tmp_path, capsys, data):
    (tmp_path / "d.xyz").write_text("a,b\n1,2\n")
    assert "the name does not tell the format" in refusal(["fit", tmp_path / "d.xyz", "--model", "lad"], capsys)
    assert "save it as CSV" in refusal(["fit", "d.xlsx", "--model", "lad", *REGRESSION], capsys)
    assert "No such file or directory" in refusal(
        ["fit", tmp_path / "none.csv", "--model", "lad", "--target", "x"], capsys
    )
    (tmp_path / "d.libsvm").write_text("1 nonsense\n")
    assert "not read as LIBSVM" in refusal(["fit", tmp_path / "d.libsvm", "--model", "lad"], capsys)
    dump_svmlight_file(*data, str(tmp_path / "e.libsvm"), zero_based=False)
    assert "no named columns" in refusal(["fit", tmp_path / "e.libsvm", "--model", "lad", "--target", "y"], capsys)


def test_text_in_parquet_is_named(tmp_path, capsys):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": ["few", "many"], "price": [1.0, 2.0]}), tmp_path / "d.parquet")
    message = refusal(["fit", tmp_path / "d.parquet", "--model", "lad", "--target", "price"], capsys)
    assert "column 'a' has to hold numbers; it holds string" in message


def test_prediction_names_the_columns_it_misses(prices, tmp_path, capsys):
    fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    capsys.readouterr()
    (tmp_path / "new.csv").write_text("rooms,tax\n1,2\n")
    message = refusal(["predict", tmp_path / "m.json", tmp_path / "new.csv"], capsys)
    assert "the model needs the columns age, area, which are not there" in message


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": "other"}', '{"format": "varopt model"}'])
def test_what_is_no_model_is_refused(content, prices, tmp_path, capsys):
    (tmp_path / "m.json").write_text(content)
    assert "not a model that `varopt fit --save` wrote" in refusal(["predict", tmp_path / "m.json", prices], capsys)


def test_a_reader_that_has_read_enough_is_no_error(prices, tmp_path):
    fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    command = [sys.executable, "-m", "varopt.cli", "predict", tmp_path / "m.json", prices]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 0
    process.stderr.close()


# How data come -------------------------------------------------------------------------------------------------------


def command(arguments, **options):
    line = [sys.executable, "-m", "varopt.cli", *map(str, arguments)]
    return subprocess.run(line, check=False, capture_output=True, **options)


def test_standard_input_and_pipes(prices, tmp_path):
    fit = ["fit", "-", "--model", "lad", *REGRESSION, "--json"]
    piped = command(fit, input=prices.read_bytes())
    assert piped.returncode == 0, piped.stderr
    expected = fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    assert json.loads(piped.stdout)["coef"] == expected.coef
    assert json.loads(piped.stdout)["data"] == "standard input"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no fifos")
def test_a_fifo_loses_nothing(prices, tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(prices.read_bytes()))
    writer.start()
    model = fitted([fifo, "--model", "lad", *REGRESSION], tmp_path / "f.json")
    writer.join()
    assert model.rows == 80
    assert model.coef == fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json").coef


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_known_by_their_content(pack, prices, tmp_path):
    path = tmp_path / "prices.csv"  # whatever the name says
    expected = fitted([prices, "--model", "lad", *REGRESSION], tmp_path / "m.json")
    path.write_bytes(pack(prices.read_bytes()))
    assert fitted([path, "--model", "lad", *REGRESSION], tmp_path / "p.json").coef == expected.coef


def test_a_broken_archive_is_told(tmp_path, capsys):
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"a,price\n1,2\n")[:-6])
    assert "cannot be unpacked" in refusal(
        ["fit", tmp_path / "d.csv.gz", "--model", "lad", "--target", "price"], capsys
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings_that_tell_themselves(encoding, tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes("größe,price\n1,2\n2,4\n3,6.5\n".encode(encoding))
    assert fitted([path, "--model", "lad", "--target", "price"], tmp_path / "m.json").features == ["größe"]


def test_other_encodings_are_named_by_the_user(tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_bytes("größe,price\n1,2\n2,4\n3,6.5\n".encode("cp1252"))
    fit = ["fit", path, "--model", "lad", "--target", "price"]
    assert "line 1: this is not UTF-8. If it is from Windows, say --encoding cp1252." in refusal(fit, capsys)
    assert fitted([*fit[1:], "--encoding", "cp1252"], tmp_path / "m.json").features == ["größe"]
    capsys.readouterr()
    assert "one that Python knows" in refusal([*fit, "--encoding", "klingon"], capsys)
    assert "this is not ascii. Name another with --encoding." in refusal([*fit, "--encoding", "ascii"], capsys)


def test_decimal_commas(tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_text("a;price\n1,5;2\n2,5;4\n1.003,5;6,5\n")
    fit = ["fit", path, "--model", "lad", "--target", "price"]
    assert "line 2: column 'a' has a decimal comma: '1,5'. Say --decimal , to read it." in refusal(fit, capsys)
    model = fitted([*fit[1:], "--decimal", ","], tmp_path / "m.json")
    path.write_text("a;price\n1.5;2\n2.5;4\n1003.5;6.5\n")
    assert model.coef == fitted(fit[1:], tmp_path / "n.json").coef


def test_decimal_commas_between_quotes_and_commas(tmp_path):
    (tmp_path / "d.csv").write_text('"a, in m","price"\n"1,5","2"\n"2,5","4"\n"1.003,5","6,5"\n')
    fit = [tmp_path / "d.csv", "--model", "lad", "--target", "price", "--decimal", ","]
    model = fitted(fit, tmp_path / "m.json")
    (tmp_path / "d.csv").write_text('"a, in m";"price"\n1,5;2\n2,5;4\n1003,5;6,5\n')
    assert model.features == ["a, in m"]
    assert model.coef == fitted(fit, tmp_path / "n.json").coef


@pytest.mark.parametrize("large", [0, 1e9])
def test_rows_with_more_cells_than_columns(large, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_tables, "_LARGE", large)  # pyarrow, or NumPy
    path = tmp_path / "d.csv"
    fit = ["fit", path, "--model", "lad", "--target", "price"]
    path.write_text("a,price\n1,5,2,0\n2,5,4,0\n")
    assert "line 2: there are 4 cells, and 2 columns. Decimal commas cannot be told" in refusal(fit, capsys)
    path.write_text("a,b,price\n1,5,2\n2,5,4,7\n3,1\n")
    assert "line 3: there are 4 cells, and 3 columns. Put text" in refusal(fit, capsys)
    path.write_text('name,a,price\n"x, y",1,2,\n"z",2,4,\nw,3,6.5\n')  # nothing behind the last comma
    assert fitted([*fit[1:], "--drop", "name"], tmp_path / "m.json").rows == 3


def test_several_quantiles_have_names(prices, data, tmp_path, capsys):
    several = [prices, "--model", "quantile", *REGRESSION, "--set", "quantile=[0.1,0.9]"]
    model = fitted([*several, "--coefficients", tmp_path / "c.csv", "--cv", "3"], tmp_path / "m.json")
    assert " of quantile 0.9; the optimum is" in capsys.readouterr().out
    assert (tmp_path / "c.csv").read_text().splitlines()[0] == "feature,quantile 0.1,quantile 0.9"
    assert main(["predict", str(tmp_path / "m.json"), str(prices)]) == 0
    printed = capsys.readouterr()
    header, *rows = printed.out.splitlines()
    assert header == "quantile 0.1,quantile 0.9"
    X, y = data
    estimator = learn.QuantileRegressor(quantile=[0.1, 0.9], alpha=0.0).fit(X, y)
    np.testing.assert_allclose([[*map(float, row.split(","))] for row in rows], estimator.predict(X), rtol=1e-9)
    loss = np.mean([mean_pinball_loss(y, p, alpha=q) for q, p in zip([0.1, 0.9], estimator.predict(X).T, strict=True)])
    assert f"mean pinball loss {loss:.6g} over 80 rows" in printed.err
    assert model.predict(X).shape == (80, 2)


def test_files_without_a_header(data, tmp_path):
    X, y = data
    np.savetxt(tmp_path / "d.csv", np.column_stack([X, y]), delimiter=",")
    model = fitted([tmp_path / "d.csv", "--model", "lad", "--no-header", "--target", "5"], tmp_path / "m.json")
    assert (model.features, model.rows) == (["1", "2", "3", "4"], 80)


def test_rows_that_lack_a_value(tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_text("a,b,price\n1,2,3\n2,,4\nNA,1,5\n4,3,7\n5,1,\n6,2,8\n")
    fit = [path, "--model", "lad", "--target", "price", "--set", "fit_intercept=false"]
    assert "line 3: column 'b' has no value; fill it" in refusal(["fit", *fit], capsys)
    dropped = fitted([*fit, "--missing", "drop"], tmp_path / "m.json")
    assert dropped.rows == 3
    assert "3 rows (3 more lack a value)" in capsys.readouterr().out
    assert fitted([*fit, "--missing", "mean"], tmp_path / "n.json").rows == 5  # the target is never filled in
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "m.json"), str(path), "--missing", "drop"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [bool(line.strip('"')) for line in lines[1:]] == [True, False, False, True, False, True]  # a line a row
    assert "3 rows lack a value" in printed.err


def test_columns_without_any_value_have_no_mean(tmp_path, capsys):
    (tmp_path / "d.csv").write_text("a,b,price\n1,,3\n2,,4\n")
    fit = ["fit", tmp_path / "d.csv", "--model", "lad", "--target", "price"]
    assert "column 'b' has no value at all" in refusal([*fit, "--missing", "mean"], capsys)
    assert "every row lacks a value" in refusal([*fit, "--missing", "drop"], capsys)


def test_large_files_are_read_the_same_by_pyarrow(data, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    path = write_csv(tmp_path / "d.csv", data)
    small = _tables.Source(path).numbers(NAMES)
    monkeypatch.setattr(_tables, "_LARGE", 0)
    np.testing.assert_array_equal(_tables.Source(path).numbers(NAMES), small)
    path.write_text("a,price\n1,2\nfew,3\n")
    with pytest.raises(ValueError, match="line 3: column 'a' has to be a number; got 'few'"):
        _tables.Source(path).numbers(["a"])


# What comes out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "measure"),
    [("lad", "mean absolute error"), ("quantile", "mean pinball loss"), ("svm", "share of rows classified wrongly")],
)
def test_cross_validation(model, measure, prices, capsys):
    which = CLASSES if model == "svm" else REGRESSION
    assert main(["fit", str(prices), "--model", model, *which, "--cv", "4"]) == 0
    assert f"on new rows  {measure} " in capsys.readouterr().out
    assert main(["fit", str(prices), "--model", model, *which, "--cv", "4", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cross_validation"]["measure"] == measure
    assert len(content["cross_validation"]["errors"]) == 4
    assert content["gap"][0] >= 0.0


def test_folds_are_checked(prices, capsys):
    assert "from 2 to the number of rows, 80; got 1" in refusal(
        ["fit", prices, "--model", "lad", *REGRESSION, "--cv", "1"], capsys
    )


@pytest.mark.parametrize("option", ["--save", "--coefficients"])
def test_what_cannot_be_written_is_told_before_the_fit(option, prices, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(learn.LADRegressor, "fit", lambda *_: pytest.fail("it was fitted"))
    fit = ["fit", prices, "--model", "lad", *REGRESSION, option]
    assert "there is no folder" in refusal([*fit, tmp_path / "none" / "m.json"], capsys)
    assert "this is a folder" in refusal([*fit, tmp_path], capsys)


def test_a_target_of_many_values_is_no_class(tmp_path, capsys):
    (tmp_path / "d.csv").write_text("a,price\n" + "\n".join(f"{i},{i}.5" for i in range(150)))
    message = refusal(["fit", tmp_path / "d.csv", "--model", "svm", "--target", "price"], capsys)
    assert "has 150 values, too many for classes" in message


def test_a_perfect_fit_reads_well(tmp_path, capsys):
    (tmp_path / "d.csv").write_text("a,price\n" + "\n".join(f"{i},{2 * i}" for i in range(20)))
    assert main(["fit", str(tmp_path / "d.csv"), "--model", "lad", "--target", "price"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("objective"))
    assert "of it" not in line
    assert "the optimum is" in line


def test_many_parquet_files_are_read_in_passes(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    y = X @ [1.0, 0.0, -2.0] + rng.standard_normal(600)
    for i in range(3):
        part = slice(200 * i, 200 * (i + 1))
        columns = {"a": X[part, 0], "b": X[part, 1], "c": X[part, 2], "y": y[part], "skip": y[part]}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    model = tmp_path / "model.json"
    pattern = str(tmp_path / "*.parquet")
    given = ["--model", "lad", "--target", "y", "--drop", "skip", "--memory", "1GB", "--save", str(model)]
    assert main(["fit", pattern, *given]) == 0
    printed = capsys.readouterr().out
    assert "600 rows" in printed
    assert "passes       1 over the data" in printed
    assert json.loads(model.read_text("utf-8"))["coef"][0] == pytest.approx([1.0, 0.0, -2.0], abs=0.2)
    assert main(["fit", pattern, "--model", "lad", "--target", "y", "--cv", "3"]) == 2
    assert "--cv needs data in memory" in capsys.readouterr().err
    assert main(["fit", pattern, "--model", "lad", "--target", "none"]) == 2
    assert "no column 'none'" in capsys.readouterr().err
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.csv").write_text("a,y\n1,2\n")
    message = refusal(["fit", tmp_path / "texts", "--model", "lad", "--target", "y"], capsys)
    assert "a.csv cannot be read as a Parquet file; of a folder every file has to be one.\n" in message


def test_the_numbers_of_rows_are_no_feature(tmp_path, capsys):
    """``frame.to_csv(path)`` writes them in a column without a name, and they were fitted."""
    rows = [f"{i},{i % 3},{2 * (i % 3)}" for i in range(12)]
    (tmp_path / "d.csv").write_text("\n".join([",a,price", *rows]))
    given = ["fit", str(tmp_path / "d.csv"), "--model", "lad", "--target", "price", "--json"]
    assert main(given) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["features"] == ["a"]
    assert "the column without a name numbers the rows" in captured.err
    assert main([*given, "--features", "a"]) == 0
    assert capsys.readouterr().err == ""


def test_several_values_of_a_parameter(prices, tmp_path):
    arguments = ["--model", "quantile", *REGRESSION, "--save", str(tmp_path / "m.json")]
    assert main(["fit", str(prices), *arguments, "--set", "quantile=0.1,0.9"]) == 0
    assert json.loads((tmp_path / "m.json").read_text("utf-8"))["parameters"]["quantile"] == [0.1, 0.9]
