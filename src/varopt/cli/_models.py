"""The models that can be fitted by name, and the JSON file that keeps one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt

__all__ = ["MODELS", "FittedModel", "Kind", "build"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A model by the name of the command line: an estimator of `varopt.learn` with its usual parameters."""

    estimator: str
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    classifier: bool = False


MODELS: dict[str, Kind] = {
    "quantile": Kind("QuantileRegressor", "quantile regression: quantile=0.5, alpha=0", {"alpha": 0.0}),
    "lad": Kind("LADRegressor", "least absolute deviations: alpha=0"),
    "huber": Kind("HuberRegressor", "Huber's regression: epsilon=1.35, alpha=0.0001"),
    "lasso": Kind("Lasso", "least squares with an L1 penalty: alpha=1"),
    "elastic-net": Kind("ElasticNet", "least squares with L1 and L2 penalties: alpha=1, l1_ratio=0.5"),
    "fused": Kind("FusedLasso", "fused lasso, neighbouring columns alike: alpha=0.1, fusion=0.1"),
    "svr": Kind("LinearSVR", "support vector regression: C=1, epsilon=0"),
    "svm": Kind("LinearSVC", "support vector machine: C=1, loss=hinge", {"loss": "hinge"}, classifier=True),
}


def build(name: str, settings: Sequence[str], options: Mapping[str, Any]) -> Any:
    """The estimator of a model, its parameters set by texts such as ``alpha=0.1``."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; choose from {', '.join(MODELS)}.")
    try:
        learn = importlib.import_module("varopt.learn")
    except ModuleNotFoundError as error:
        raise ValueError(f"fitting needs {error.name}, which is not installed.") from None
    kind = MODELS[name]
    estimator = getattr(learn, kind.estimator)(**kind.defaults)
    accepted = estimator.get_params()
    for setting in settings:
        parameter, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE; got {setting!r}.")
        if parameter not in accepted:
            raise ValueError(f"model {name} has no parameter {parameter!r}; it has {', '.join(sorted(accepted))}.")
        estimator.set_params(**{parameter: _value(text)})
    return estimator.set_params(**{key: value for key, value in options.items() if value is not None})


def _value(text: str) -> Any:
    """A number, true, false or null as in JSON, or several between commas; anything else is text."""
    for written in (text, f"[{text}]"):
        with suppress(json.JSONDecodeError):
            return json.loads(written)
    return text


@dataclass(frozen=True)
class FittedModel:
    """A linear model with what is known of its optimality, kept as JSON.

    `coef` has a row and `intercept` an entry for each output: one, or one per class where there are more than two.
    """

    model: str
    parameters: dict[str, Any]
    target: str
    features: list[str]
    coef: list[list[float]]
    intercept: list[float]
    classes: list[Any] | None
    objective: list[float]
    lower: list[float]
    certificate: str
    rows: int
    version: str

    @classmethod
    def of(cls, name: str, estimator: Any, target: str, features: list[str], rows: int) -> FittedModel:
        """What a fitted estimator leaves behind."""
        defaults = type(estimator)().get_params()
        changed = {key: value for key, value in estimator.get_params().items() if value != defaults[key]}
        certificate = estimator.certificate_
        classes = getattr(estimator, "classes_", None)
        return cls(
            model=name,
            parameters=changed,
            target=target,
            features=features,
            coef=np.atleast_2d(estimator.coef_).tolist(),
            intercept=np.broadcast_to(
                np.ravel(estimator.intercept_), (np.atleast_2d(estimator.coef_).shape[0],)
            ).tolist(),
            classes=None if classes is None else np.asarray(classes).tolist(),
            objective=np.atleast_1d(estimator.objective_).tolist(),
            lower=np.atleast_1d(estimator.lower_bound_).tolist(),
            certificate=str(certificate[0] if isinstance(certificate, list) else certificate),
            rows=rows,
            version=varopt.__version__,
        )

    @property
    def outputs(self) -> list[str]:
        """What each row of `coef` is for: a class, a quantile, or the prediction."""
        if len(self.coef) == 1:
            return ["prediction"]
        if self.classes is not None:
            return [f"class {label}" for label in self.classes]
        return [f"quantile {level:g}" for level in self.parameters["quantile"]]

    def decision(self, X: Any) -> Vector:
        """``X w + b``, a column for each output."""
        return np.asarray(X @ np.array(self.coef).T + np.array(self.intercept))

    def predict(self, X: Any) -> NDArray[Any]:
        """The prediction for each row; a column for each quantile where there are several."""
        values = self.decision(X)
        if self.classes is None:
            return values[:, 0] if values.shape[1] == 1 else values
        index = (values[:, 0] > 0.0).astype(np.intp) if values.shape[1] == 1 else np.argmax(values, axis=1)
        return np.asarray(np.array(self.classes)[index])

    def save(self, path: Path) -> None:
        """Write the model; numbers are written so that they read back exactly."""
        path.write_text(json.dumps({"format": "varopt model", **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> FittedModel:
        """Read a model."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("format") != "varopt model":
                raise KeyError("format")
            return cls(**content)
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError):
            raise ValueError(f"{path}: this is not a model that `varopt fit --save` wrote.") from None
