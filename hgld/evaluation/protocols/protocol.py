"""The shape that every protocol has: declared input files, and a function that builds tasks from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import EvaluationFiles, EvaluationInputs
from hgld.evaluation.protocols.landmark_answers import LandmarkAnswers
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask


@dataclass(frozen=True)
class InputSet:
    """A combination of inputs that a protocol accepts.

    Args:
        required: Fields of :class:`EvaluationFiles`.
        optional: Further fields.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def missing(self, given: set[str]) -> list[str]:
        """Return the required inputs that are not given."""
        return [name for name in self.required if name not in given]

    def unexpected(self, given: set[str]) -> list[str]:
        """Return the given inputs that the protocol does not use."""
        return sorted(given.difference(self.required, self.optional))


@dataclass(frozen=True)
class EvaluationProtocol:
    """A way to evaluate embeddings.

    Args:
        name: Name for users.
        inputs: Combinations of inputs that it accepts, the usual one first.
        build_tasks: Function from the contents of the input files to the tasks. It raises an
            :class:`~hgld.errors.InputError` for ground truth that is malformed or does not fit the embeddings.
        descriptions: What an input is for this protocol, for messages.
        metrics_require: Input without which metrics cannot be chosen, if any.
        reports_mean: Whether the mean over the results is reported.
        answer_queries: Function from the contents of the input files to the results and the answers, for protocols
            that score an answer to each query instead of a ranking.
        score_predictions: Function from the input files to the results, for protocols that score ``predictions``
            instead of ranking embeddings.
    """

    name: str
    inputs: tuple[InputSet, ...]
    build_tasks: Callable[[EvaluationInputs], list[RetrievalTask]]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    metrics_require: str | None = None
    reports_mean: bool = False
    answer_queries: (
        Callable[[EvaluationInputs, EvaluationConfig], tuple[list[RetrievalResult], LandmarkAnswers]] | None
    ) = None
    score_predictions: Callable[[EvaluationFiles, EvaluationConfig], list[RetrievalResult]] | None = None

    def check(self, files: EvaluationFiles, config: EvaluationConfig) -> None:
        """Check that the given inputs are one of the accepted combinations.

        Raises:
            ConfigurationError: An input is missing, or the protocol does not use it.
        """
        given = files.given()
        closest = min(self.inputs, key=lambda inputs: len(inputs.missing(given)) + len(inputs.unexpected(given)))
        missing, unexpected = closest.missing(given), closest.unexpected(given)
        problems = []
        if missing:
            problems.append(f"needs {_listed([self._described(name) for name in missing])}")
        if unexpected:
            problems.append(f"does not use {_listed([f'`{name}`' for name in unexpected])}")
        if problems:
            raise ConfigurationError(f"the protocol {self.name} {' and '.join(problems)}")
        if config.metrics is not None and self.metrics_require is not None and self.metrics_require not in given:
            raise ConfigurationError(f"the protocol {self.name} takes `metrics` only with `{self.metrics_require}`")

    def _described(self, name: str) -> str:
        return f"`{name}` ({self.descriptions[name]})" if name in self.descriptions else f"`{name}`"


def _listed(names: list[str]) -> str:
    """Join names with commas and "and"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
