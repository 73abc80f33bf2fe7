"""Execute a notebook and write it in the one form in which notebooks are committed.

Two runs of a deterministic notebook give byte-identical files, so a diff shows what changed in the
lesson and nothing else.
"""

import copy
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.output_widget import OutputWidget

from minimoe.errors import MinimoeError

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
CELL_METADATA = ("tags", "jupyter", "jp-MarkdownHeadingCollapsed")
WIDGET = "application/vnd.jupyter.widget-view+json"
OUTPUT = ("@jupyter-widgets/output", "OutputModel")


class NotebookError(MinimoeError):
    """A notebook that cannot be read, or that failed while it ran."""


class _SilentOutput(OutputWidget):
    """The output area of sliders, which tells the kernel nothing of what it holds.

    nbclient tells it through the very socket on which it waits for the cell's end, and a reply that
    has come in the meantime is then not noticed until the time-out.
    """

    def send(self, data=None, metadata=None, buffers=None) -> None:
        """Nobody reads it: widget state is not committed."""


def read(path: str | Path) -> nbformat.NotebookNode:
    """Read a notebook. Raises NotebookError when the file is missing or is no notebook."""
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise NotebookError(f"no notebook at {path}: give the path of an .ipynb file") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, AttributeError) as error:
        reason = str(error).splitlines()[0][:80]
        raise NotebookError(f"{path} is not a notebook ({reason}): build it again") from None


def execute(notebook: nbformat.NotebookNode, folder: str | Path, timeout: int = 120) -> None:
    """Run all cells in place, in `folder`, with at most `timeout` seconds a cell.

    Raises NotebookError naming the cell that failed, and how.
    """
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # of the kernel itself, not of the cells
        resources={"metadata": {"path": folder}},
    )
    client.widget_registry[OUTPUT[0]][OUTPUT[1]] = _SilentOutput
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"cell {_last_cell(notebook)!r}: {_reason(error)}") from None


def _last_cell(notebook: nbformat.NotebookNode) -> str:
    """The id of the cell that was running: the first with an error, else the first not finished."""
    for cell in code_cells(notebook):
        failed = any(output.output_type == "error" for output in cell.outputs)
        if failed or (cell.source.strip() and cell.execution_count is None):
            return cell.id
    return notebook.cells[-1].id


def _reason(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {error.evalue}"
    return str(error).strip().splitlines()[0]


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The Markdown cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def has_tag(cell: nbformat.NotebookNode, tag: str) -> bool:
    """Is the cell tagged `tag`?"""
    return tag in cell.metadata.get("tags", [])


def normalised(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy in normal form: little metadata, no widget views, streams merged."""
    result = copy.deepcopy(notebook)
    result.metadata = nbformat.from_dict(METADATA)
    result.nbformat, result.nbformat_minor = 4, 5
    for cell in result.cells:
        _normalise_cell(cell)
    return result


def _normalise_cell(cell: nbformat.NotebookNode) -> None:
    kept = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)}
    cell.metadata = nbformat.from_dict(kept)
    cell.source = "\n".join(line.rstrip() for line in cell.source.splitlines()).strip("\n")
    cell.pop("attachments", None)
    if cell.cell_type == "code":
        shown = [output for output in cell.outputs if not _is_widget(output)]
        cell.outputs = _merge_streams(shown)
        for output in cell.outputs:
            _normalise_output(output, cell.execution_count)


def _is_widget(output: nbformat.NotebookNode) -> bool:
    """A widget view means nothing without its kernel; its text says only `interactive(...)`."""
    return WIDGET in output.get("data", {})


def _merge_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join consecutive streams of one name: how a print is cut into messages is chance."""
    merged: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def _normalise_output(output: nbformat.NotebookNode, count: int | None) -> None:
    output.pop("transient", None)
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})
    if output.output_type == "execute_result":
        output.execution_count = count


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The exact text of the committed file."""
    return nbformat.writes(notebook, version=4) + "\n"


def write(notebook: nbformat.NotebookNode, path: str | Path) -> None:
    """Write the notebook in normal form. Raises NotebookError when it is no valid notebook."""
    clean = normalised(notebook)
    try:
        nbformat.validate(clean)
    except nbformat.ValidationError as error:
        raise NotebookError(f"{path}: {error.message}") from None
    Path(path).write_text(text_of(clean), encoding="utf-8")
