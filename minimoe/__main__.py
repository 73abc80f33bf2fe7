"""`python -m minimoe VERB`: the command line. Each verb lives in the package that owns it."""

import argparse
import json
import os
import sys
from importlib import import_module

VERBS = {
    "generate": ("minimoe.engine.command", "complete a prompt"),
    "eval": ("minimoe.bench.eval", "bits per byte of files, beside gzip and xz"),
    "bench": ("minimoe.bench.command", "measure: decode, prefill, moe, attention, reuse ..."),
    "replay": ("minimoe.kvstore.replay", "replay a trace of requests through a block cache"),
    "train": ("minimoe.training.command", "train the tiny model, on a laptop or a GPU"),
    "train-drafter": ("minimoe.training.drafter_command", "train a drafter for speculation"),
    "check": ("minimoe.course.ready", "is this laptop ready?"),
    "tour": ("minimoe.course.terminal_tour", "the two-minute tour; also without any verb"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb; gives the exit code: 0, 1 for a negative result, 2 for bad input."""
    argv = sys.argv[1:] if argv is None else argv
    verb = next((word for word in argv if not word.startswith("-")), None)
    if not argv:
        verb, argv = "tour", ["tour"]
    try:
        args = _parser(verb).parse_args(argv)
        if args.verb is None:
            return 0
        return _run(args)
    except ValueError as error:
        return _complain(str(error))
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (nothing more can be written)
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser(verb: str | None) -> argparse.ArgumentParser:
    """All verbs by name, with the arguments of the one asked for: the others stay unimported."""
    parser = argparse.ArgumentParser(
        prog="python -m minimoe",
        description="A tiny mixture-of-experts model and its inference engine. "
        "Without a verb: a two-minute tour.",
    )
    commands = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, (module, line) in VERBS.items():
        command = commands.add_parser(name, help=line, description=line)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        if name == verb:
            import_module(module).add_arguments(command)
    return parser


def _run(args: argparse.Namespace) -> int:
    module = import_module(VERBS[args.verb][0])
    result = module.main(args)
    print(json.dumps(result) if args.json else module.render(result))
    return int(result.get("exit_code", 0))


def _complain(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
