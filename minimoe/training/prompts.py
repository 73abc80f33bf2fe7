"""Prompts of the four domains for tours and measurements: python -m minimoe.training.prompts

Story, chat and json come from our generators with a seed that training does not use; code is this
package's own source. Written to `data/prompts.json`.
"""

import json
import random
from itertools import islice
from pathlib import Path

from minimoe.config import REPO, SHIPPED
from minimoe.training import chat, records, story

COUNT = 32  # per domain
CODE = ("minimoe/engine", "minimoe/model", "minimoe/ops", "minimoe/training")


def domain_prompts(count: int = COUNT) -> dict[str, list[str]]:
    """{"code": [...], "story": [...], "chat": [...], "json": [...]}, `count` texts each."""
    generators = {"story": story, "chat": chat, "json": records}
    prompts = {"code": _own_sources(count)}
    for name, module in generators.items():
        rng = random.Random(f"{name} prompts")
        prompts[name] = list(islice(module.documents(rng), count))
    return prompts


def _own_sources(count: int) -> list[str]:
    """Stretches of about 1,500 characters of our own files, starting at a definition."""
    texts = []
    for path in sorted(p for folder in CODE for p in (REPO / folder).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        starts = [at for at in range(len(source)) if source.startswith(("\ndef ", "\nclass "), at)]
        texts += [source[at + 1 : at + 1500] for at in starts if len(source) - at > 800]
    return random.Random("code prompts").sample(texts, count)


def main(path: Path = SHIPPED / "prompts.json") -> None:
    text = json.dumps(domain_prompts(), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(REPO)}")


if __name__ == "__main__":
    main()
