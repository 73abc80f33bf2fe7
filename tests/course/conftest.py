"""A tiny notebook, complete by every rule, as source text and as a file that has run."""

import pytest

from minimoe.course import source
from minimoe.course.normal_form import execute, write

EXERCISE = """
%% markdown ex{n}
### Exercise {n}: Double it (easy, 2 minutes)

%% code ex{n}-todo [exercise]
def double(x):
    \"\"\"Return twice x.\"\"\"
    ...

%% code ex{n}-check
print("check goes here")  # check("99-double", double)

%% markdown ex{n}-hint
<details><summary>Hint</summary>

Add it to itself.
</details>

%% markdown ex{n}-solution
<details><summary>Solution</summary>

```python
def double(x):
    return x + x
```
</details>
"""

TEXT = (
    """
%% markdown title
# How much is twice?

**Question:** what is twice a number?
**Minutes:** 5
**Builds on:** nothing
**You will be able to:** double

%% code imports [setup]
import random

%% code measure
print(sum([1, 2]))

%% code timing [nbval-ignore-output]
slow = random.random()
print(slow)
assert slow < 1
"""
    + "".join(EXERCISE.format(n=n) for n in (1, 2, 3))
    + """
%% markdown recap
## Recap
Twice is once more.
"""
)


@pytest.fixture
def text():
    """Source of a notebook in which lint finds nothing once it has run."""
    return TEXT


@pytest.fixture(scope="session")
def executed(tmp_path_factory):
    """That notebook, run once for all tests."""
    folder = tmp_path_factory.mktemp("executed")
    notebook = source.build(TEXT)
    execute(notebook, folder)
    write(notebook, folder / "10_twice.ipynb")
    return notebook


@pytest.fixture
def make(tmp_path, executed):
    """`make(change)` writes a changed copy of the executed notebook and gives its path."""
    import copy

    def make(change=lambda notebook: None, name="10_twice.ipynb"):
        notebook = copy.deepcopy(executed)
        change(notebook)
        path = tmp_path / name
        write(notebook, path)
        return path

    return make
