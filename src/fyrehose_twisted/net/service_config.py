"""Configuration of the services that run one node, and the parameters that it replaced."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ParamSpec

from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.process.secret import check_secret

P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Configuration that all services share. Each protocol has a subclass with its own fields.

    :ivar listen: server endpoints for links from other nodes: a sequence, or one as a string.
    :ivar secret: secret that all nodes of the network share; ``None`` for a network without one.
    :ivar limits: limits of links; by default, those for the maximum number of links of the node.
    :raises ConfigurationError: if a value is out of range.
    """

    listen: Sequence[str] = ()
    secret: bytes | None = field(default=None, repr=False)
    limits: ConnectionLimits | None = None

    def check(self) -> None:
        """Complete and check the shared fields; called by each subclass."""
        self._make_tuple("listen")
        if self.secret is not None:
            check_secret(self.secret)

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits of links."""
        return self._default_limits() if self.limits is None else self.limits

    def _default_limits(self) -> ConnectionLimits:
        raise NotImplementedError(f"{type(self).__name__} does not override _default_limits()")

    def _make_tuple(self, name: str) -> None:
        """Replace a sequence of strings, or one string, by a tuple."""
        value = getattr(self, name)
        object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))


@dataclass(frozen=True, kw_only=True)
class ControlledServiceConfig(ServiceConfig):
    """Configuration of a service with a state file and a control port.

    :ivar state: file with the durable state of the node, used by no other node; ``None`` for none.
    :ivar control: server endpoint of the control port; ``None`` for none.
    :ivar metrics: server endpoint for Prometheus metrics; ``None`` for none.
    """

    state: Path | None = None
    control: str | None = None
    metrics: str | None = None


def default_limits(max_links: int, always: int = 32, **more: float) -> ConnectionLimits:
    """Return limits that let one source open half of the links, or ``always`` if that is more.

    :param more: further fields of the limits.
    """
    per_source = max(min(always, max_links), max_links // 2)
    return ConnectionLimits(max_accepted=max_links, max_per_source=per_source, **more)  # type: ignore[arg-type]


def accepts_old_parameters(
    config_class: type[ServiceConfig], *positional: str, renamed: Mapping[str, str] | None = None
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return a decorator for a constructor that takes a configuration in place of its former parameters.

    The constructor still accepts them, with a DeprecationWarning that shows the call to write instead.

    :param positional: names of the former positional parameters. The fields of an object named ``config`` become
        fields of the configuration.
    :param renamed: fields by the former keywords that had other names.
    """

    def decorate(construct: Callable[P, None]) -> Callable[P, None]:
        kept = inspect.signature(construct).parameters.keys() - {"self", "config"}

        @functools.wraps(construct)
        def wrapper(*args: Any, **keywords: Any) -> None:
            service, *given = args
            former = dict(zip(positional, given, strict=False))
            former |= {name: value for name, value in keywords.items() if name not in kept}
            if not former or isinstance(former.get(positional[0], former.get("config")), config_class):
                construct(*args, **keywords)
                return
            if len(given) > len(positional):
                raise TypeError(f"{type(service).__name__}() takes {len(positional)} positional arguments at most")
            config = _config_from(config_class, former, renamed or {})
            warnings.warn(
                f"{_owner(construct)} takes one configuration now: {_owner(construct)}({_call(config)})",
                DeprecationWarning,
                stacklevel=2,
            )
            others = {name: value for name, value in keywords.items() if name in kept}
            construct(service, config, **others)  # type: ignore[arg-type]

        return wrapper

    return decorate


def _config_from(
    config_class: type[ServiceConfig], former: Mapping[str, Any], renamed: Mapping[str, str]
) -> ServiceConfig:
    settings = {renamed.get(name, name): value for name, value in former.items() if name != "config"}
    if "config" in former:
        node = former["config"]
        # A service may have another default than its node.
        chosen = {one.name: value for one in fields(node) if (value := getattr(node, one.name)) != _default(one)}
        settings = chosen | settings
    return config_class(**settings)


def _owner(construct: Callable[..., None]) -> str:
    return construct.__qualname__.partition(".")[0]


def _call(config: ServiceConfig) -> str:
    """Return the call that makes ``config``, with the names of its fields in place of the values."""
    given = [one.name for one in fields(config) if getattr(config, one.name) != _default(one)]
    return f"{type(config).__name__}({', '.join(f'{name}=...' for name in given)})"


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()
