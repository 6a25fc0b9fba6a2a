"""One door to all files: it goes by the ending, and knows what each loader takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engram.data import load
from engram.data.loaders import LOADERS


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a file of records, found none at"):
        load(tmp_path / "nothing.npz")


def test_an_unknown_ending_is_answered_with_the_known(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot tell .* what a\.xlsx holds; known endings: \.csv, ") as told:
        load(tmp_path / "a.xlsx")
    assert all(ending in str(told.value) for ending in LOADERS)


def test_an_argument_that_the_loader_lacks_is_answered_with_those_it_takes(tmp_path):
    np.savez(tmp_path / "a.npz", x=[[1.0]], y=[0])
    with pytest.raises(TypeError, match=r"a\.npz is loaded by from_npz, which takes x, y, images: .*'label'"):
        load(tmp_path / "a.npz", label="y")


def test_a_table_needs_its_label(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")
    with pytest.raises(TypeError, match=r"loaded by from_csv, which takes label, drop: .*'label'"):
        load(tmp_path / "a.csv")


def test_capitals_in_an_ending_do_not_matter(tmp_path):
    (tmp_path / "A.CSV").write_text("a,y\n1,0\n")
    assert load(tmp_path / "A.CSV", label="y").x.tolist() == [[1.0]]


LATE = ["pandas", "pyarrow", "PIL", "sklearn", "torch", "torchvision", "datasets"]


def test_no_optional_package_is_imported_with_the_room():
    code = f"import sys, engram.data; print([m for m in {LATE} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [
        ("pandas", "pandas", "a.csv"),
        ("pandas", "pandas", "a.parquet"),
        ("pyarrow", "pyarrow", "a.parquet"),
        ("PIL.Image", "pillow", "folder"),
    ],
)
def test_a_package_that_is_not_there_is_answered_with_the_install_line(tmp_path, monkeypatch, module, package, name):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")
    (tmp_path / "a.parquet").write_bytes(b"")
    (tmp_path / "folder" / "cat").mkdir(parents=True)
    (tmp_path / "folder" / "cat" / "1.png").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"need {package}; install it with: pip install 'engram\[data\]'"):
        load(tmp_path / name, **({"label": "y"} if name.startswith("a.") else {}))


@pytest.fixture(scope="module")
def folder():
    named = os.environ.get("ENGRAM_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("ENGRAM_DATA does not name a folder of data")
    return Path(named)


@pytest.mark.data
def test_mnist(folder):
    made = load(folder / "mnist-t10k-images-idx3-ubyte.gz")
    assert made.x.shape == (10000, 1, 28, 28)
    assert np.bincount(made.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert made.x.mean() == pytest.approx(0.1325, abs=1e-4)


@pytest.mark.data
def test_cifar(folder):
    made = load(folder / "cifar10_20k_5k.npz", x="x_test", y="y_test", images=True)
    assert made.x.shape == (5000, 3, 32, 32)
    assert np.bincount(made.y).tolist() == [500] * 10
    with np.load(folder / "cifar10_20k_5k.npz") as held:
        np.testing.assert_allclose(made.x[17, 2, 5, 9], held["x_test"][17, 5, 9, 2] / 255, rtol=1e-6)


@pytest.mark.data
def test_adult(folder):
    made = load(folder / "adult.csv.gz", label="income", drop=("split",))
    assert len(made) == 48842
    assert made.classes == ("<=50K", ">50K")
    assert made.y.sum() == 7841 + 3846
    work = [k for k, name in enumerate(made.columns) if name.startswith("workclass=")]
    assert (made.x[:, work].sum(1) == 1).all()


@pytest.mark.data
def test_location(folder):
    made = load(folder / "location30.npz")
    assert made.x.shape == (5010, 446)
    assert set(np.unique(made.x)) == {0.0, 1.0}
    assert len(made.classes) == 30
