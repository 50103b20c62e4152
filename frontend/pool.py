"""All engines of this frontend: which models they serve, whether one can answer, and which gets the next request."""

from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from pagewire.frontend.generation import EngineError, Generation, IsComplete
from pagewire.frontend.link import EngineLink, LinkState
from pagewire.protocol.messages import Error, Limits, Load, Model, Ready, Sampling


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model and what its engine said about itself when it became ready."""

    engine: str
    model: Model
    limits: Limits


class EnginePool:
    """Routes requests over links; owns the links and the ZeroMQ context."""

    def __init__(self, addresses: Sequence[str], name: str):
        """One link per address; ``name`` identifies this frontend in the engines' logs."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.links = [EngineLink(self._context, address, name) for address in addresses]

    def start(self) -> None:
        """Connect all links on the running event loop."""
        for link in self.links:
            link.start()

    def close(self) -> None:
        """Close all links; open requests end with an error."""
        for link in self.links:
            link.close()
        self._context.term()

    def models(self) -> list[EngineModel]:
        """The models of ready engines, one entry per engine, in the order of the addresses."""
        return [_describe(link.ready) for link in self.links if link.ready and link.state is LinkState.READY]

    def first_known(self) -> EngineModel | None:
        """What the first address that ever had an engine served last, whether or not that is there now."""
        return next((_describe(link.ready) for link in self.links if link.ready), None)

    def not_ready(self) -> str | None:
        """Why no engine can answer, or None when one can."""
        if any(link.state is LinkState.READY for link in self.links):
            return None
        return "; ".join(f"{link.address}: {link.state.value}" for link in self.links)

    def loads(self) -> list[tuple[EngineModel, Load, bool]]:
        """Model, last known load and readiness of every engine seen so far, for metrics."""
        return [(_describe(link.ready), link.load, link.state is LinkState.READY) for link in self.links if link.ready]

    def generate(
        self,
        target: EngineModel,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        priority: int = 0,
        salt: str = "",
        embed: bool = False,
        is_complete: IsComplete | None = None,
    ) -> Generation:
        """Send one sequence to the least busy engine with the target's model; raises EngineError if none is ready.

        With ``embed`` the answer is one delta with the prompt's embedding. ``is_complete`` is told each delta and says
        when nothing more is wanted.
        """
        serving = [
            link
            for link in self.links
            if link.state is LinkState.READY and link.ready and link.ready.model.name == target.model.name
        ]
        if not serving:
            reason = self.not_ready() or f"no engine serves {target.model.name}"
            raise EngineError(Error("draining", f"No engine is ready: {reason}.", retryable=True))
        link = min(serving, key=lambda candidate: candidate.num_open)
        return link.generate(prompt, sampling, priority=priority, salt=salt, embed=embed, is_complete=is_complete)


def _describe(ready: Ready) -> EngineModel:
    return EngineModel(engine=ready.engine, model=ready.model, limits=ready.limits)
