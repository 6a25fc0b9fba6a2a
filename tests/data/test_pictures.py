"""A folder of pictures for each class."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from engram.data import load


def write(path, values, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, np.uint8)).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path):
    red = np.zeros((4, 6, 3), np.uint8)
    red[..., 0] = 255
    write(tmp_path / "pets" / "dog" / "1.png", red)
    write(tmp_path / "pets" / "cat" / "2.PNG", 255 - red)
    write(tmp_path / "pets" / "cat" / "1.png", red // 5)
    return tmp_path / "pets"


def test_classes_are_folders_and_records_are_in_the_order_of_names(folder):
    made = load(folder)
    assert made.classes == ("cat", "dog")
    assert made.y.tolist() == [0, 0, 1]
    assert made.x.shape == (3, 3, 4, 6)
    np.testing.assert_allclose(made.x[:, :, 0, 0], [[0.2, 0, 0], [0, 1, 1], [1, 0, 0]], rtol=1e-6)
    assert made.name == "pets"


def test_other_files_and_hidden_folders_are_passed_over(folder):
    (folder / "cat" / "notes.txt").write_text("")
    (folder / "readme.txt").write_text("")
    (folder / ".cache").mkdir()
    assert load(folder).classes == ("cat", "dog")
    assert len(load(folder)) == 3


def test_pictures_may_be_read_in_grey(folder):
    grey = load(folder, colour=False).x
    assert grey.shape == (3, 1, 4, 6)
    assert grey[2].mean() == pytest.approx(0.299, abs=2e-3)  # ITU-R 601-2: the luma of pure red


def test_a_palette_is_looked_up(tmp_path):
    write(tmp_path / "all" / "a" / "1.gif", np.full((2, 2, 3), 255), mode="P")
    assert (load(tmp_path / "all").x == 1).all()


def test_other_sizes_are_named_or_brought_to_one(folder):
    write(folder / "dog" / "2.png", np.zeros((8, 6, 3)))
    with pytest.raises(ValueError, match=r"1\.png has \(4, 6\) and .*2\.png has \(8, 6\); .*size=\(rows, columns\)"):
        load(folder)
    made = load(folder, size=(2, 3))
    assert made.x.shape == (4, 3, 2, 3)
    np.testing.assert_allclose(made.x[2, :, 0, 0], [1, 0, 0])


def test_deep_pictures_are_refused(tmp_path):
    (tmp_path / "all" / "a").mkdir(parents=True)
    Image.fromarray(np.full((2, 2), 60000, np.uint16)).save(tmp_path / "all" / "a" / "1.png")
    with pytest.raises(ValueError, match=r"1\.png was not read as a picture: pictures must have 8 bits"):
        load(tmp_path / "all")


@pytest.mark.parametrize("raw", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + bytes(20)])
def test_what_is_no_picture_is_refused(folder, raw):
    (folder / "dog" / "0.png").write_bytes(raw)
    with pytest.raises(ValueError, match=r"0\.png was not read as a picture"):
        load(folder)


def test_a_folder_without_classes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must have one folder of pictures for each class"):
        load(tmp_path)
