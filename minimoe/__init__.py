"""minimoe: learn how a large mixture-of-experts inference engine works by running a small one.

Dimension key, the same letters in code comments, prose, plots and asserts:

    B requests in the step      T tokens in the step (all requests, flat)   S cached positions
    D hidden                    H heads                                     N no-rope head dim
    R rope dim                  C latent KV dim                             E routed experts
    K experts per token         F expert hidden                             V vocabulary
    G draft length              P ranks                                     Q physical expert slots
"""

__version__ = "0.1.0"
__all__ = ["LLM", "ModelConfig", "SamplingParams"]

_HOMES = {
    "LLM": "minimoe.engine.llm",
    "SamplingParams": "minimoe.engine.params",
    "ModelConfig": "minimoe.config",
}


def __getattr__(name: str):
    """Import the public names on first use, so that `python -m minimoe --help` stays quick."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'minimoe' has no attribute {name!r}")
