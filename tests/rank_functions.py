"""What tests run on ranks: they import it by name, so it stands in a module of its own."""

import os
import signal
import time

import torch

from minimoe.parallel import layer


def who(context):
    return context.rank, context.size, context.generation, os.getpid(), torch.get_num_threads()


def gather(context, value=None):
    return context.wire.gather(context.rank if value is None else value)


def fail(context, rank):
    """One rank raises in the middle of a meeting of all."""
    if context.rank == rank:
        raise KeyError("the reason")
    return context.wire.gather(context.rank)


def die(context, rank):
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.wire.gather(context.rank)


def stop(context, rank):
    """One rank keeps silent without dying."""
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    return context.wire.gather(context.rank)


def sleep(context, seconds):
    time.sleep(seconds)


def chatter(context):
    print("this must not end up among the answers")
    return "said"


def exchange(context, tokens, seed=0):
    """The layer on `tokens[rank]` tokens: inputs, output, bytes and pairs of this rank."""
    wire = context.wire
    work = layer.inputs(context, tokens[context.rank], seed)
    wire.reset()
    with torch.inference_mode():
        out = context.state["layer"](*work)
    load = context.state["layer"].take_load()
    return {"work": work, "out": out, "bytes": dict(wire.bytes), "pairs": wire.pairs, "load": load}


def weights(context):
    """Experts by slot, as they lie on this rank."""
    shard = context.state["layer"].shard
    return shard.gate_up.clone(), shard.down.clone()


def die_while_moving(context, rank, placement):
    """A rank is lost between two messages of a rebalance."""
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return layer.place(context, placement)


def break_engine(context, rank):
    """From now on this rank's engine raises in its steps."""
    if context.rank == rank:
        engine = context.state["engine"].engine

        def broken_step():
            raise KeyError("broken")

        context.state["whole"], engine.step = engine.step, broken_step


def mend_engine(context):
    if "whole" in context.state:
        context.state["engine"].engine.step = context.state.pop("whole")
