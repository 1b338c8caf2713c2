"""`varopt fit` and `varopt predict`: every format and model, the file in between, and every refusal."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from varopt import learn
from varopt.cli import main
from varopt.cli._models import MODELS, FittedModel

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
        (
            ["--model", "lad", "--target", "cost"],
            "there is no column 'cost'; the columns are rooms, age, tax, area, price",
        ),
        (["--model", "lad", "--target", "price", "--features", "room"], "there is no column 'room'"),
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
        ("a,price\n1,2\nnan,3\n", "column 'a' is not finite in row 2"),
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
