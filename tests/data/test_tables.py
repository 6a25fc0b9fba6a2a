"""Records that are rows of a table."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from engram.data import from_csv, load, tables

FRAME = pd.DataFrame(
    {
        "age": [39, 50, 28],
        "work": ["state", "self", "state"],
        "hours": [40.5, 13.0, 60.0],
        "member": [True, False, True],
        "income": ["low", "high", "low"],
    }
)


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def path(request, tmp_path):
    place = tmp_path / f"people.{request.param}"
    FRAME.to_parquet(place) if request.param == "parquet" else FRAME.to_csv(place, index=False)
    return place


def test_numbers_stay_and_text_becomes_one_column_each(path):
    made = load(path, label="income")
    assert made.columns == ("age", "work=self", "work=state", "hours", "member")
    assert made.x.dtype == np.float32
    assert made.x.tolist() == [[39, 0, 1, 40.5, 1], [50, 1, 0, 13, 0], [28, 0, 1, 60, 1]]
    assert made.classes == ("high", "low")
    assert made.y.tolist() == [1, 0, 1]
    assert made.name == "people"


def test_columns_may_be_left_out(path):
    assert load(path, label="income", drop=("work", "member")).columns == ("age", "hours")


def test_labels_that_are_whole_numbers_stay(path):
    assert load(path, label="age").y.tolist() == [39, 50, 28]


def test_labels_that_are_fractions_are_refused(path):
    with pytest.raises(TypeError, match="labels must be whole numbers from 0, got float64"):
        load(path, label="hours")


@pytest.mark.parametrize("how", [{"label": "incom"}, {"label": "income", "drop": ("incom",)}])
def test_an_unknown_column_is_answered_with_all(path, how):
    says = r"no column of people.* is called 'incom'; did you mean income\? Known: age, hours, income, member, work"
    with pytest.raises(ValueError, match=says):
        load(path, **how)


@pytest.mark.parametrize(("column", "kind"), [("work", str), ("age", float), ("income", str)])
@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_a_missing_value_is_refused_with_its_column(tmp_path, column, kind, end):
    frame = FRAME.astype({column: object if kind is str else float})
    frame.loc[1, column] = None if kind is str else np.nan
    place = tmp_path / f"a.{end}"
    frame.to_csv(place, index=False) if end == "csv" else frame.to_parquet(place)
    with pytest.raises(ValueError, match=rf"column '{column}' of a\.{end} has 1 missing values; fill them"):
        load(place, label="income")


def test_a_missing_value_of_a_column_left_out_does_not_matter(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,y\n1,,0\n2,3,1\n")
    assert load(tmp_path / "a.csv", label="y", drop=("b",)).x.tolist() == [[1.0], [2.0]]


def test_an_infinite_value_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,0\ninf,1\n")
    with pytest.raises(ValueError, match="records must be finite, got inf in record 1"):
        load(tmp_path / "a.csv", label="y")


def test_a_column_of_names_is_no_category(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST", 2)
    (tmp_path / "a.csv").write_text("name,b,y\nada,1,0\nbob,2,1\ncyd,2,1\n")
    with pytest.raises(ValueError, match=r"column 'name' has 3 different texts.*drop=\('name',\)"):
        load(tmp_path / "a.csv", label="y")


def test_declared_categories_are_texts_too(tmp_path):
    FRAME.astype({"work": "category", "income": "category"}).to_parquet(tmp_path / "a.parquet")
    made = load(tmp_path / "a.parquet", label="income", drop=("age", "hours", "member"))
    assert made.columns == ("work=self", "work=state")
    assert made.classes == ("high", "low")


@pytest.mark.parametrize("values", [[[1], [2], [3]], pd.to_datetime(["2020-01-01"] * 3)], ids=["lists", "dates"])
def test_what_is_neither_number_nor_text_is_refused(tmp_path, values):
    FRAME.assign(odd=values).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(TypeError, match=r"column 'odd' must hold numbers or text, got .*; leave it out"):
        load(tmp_path / "a.parquet", label="income")


def test_a_table_of_labels_alone_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("y\n0\n1\n")
    with pytest.raises(ValueError, match="has no column besides its label 'y'"):
        load(tmp_path / "a.csv", label="y")


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a.csv", b""),
        ("a.csv", b"a,b\n1,2\n1,2,3,4\n"),
        ("a.csv", b"\xff\xfe\x00a"),
        ("a.csv.gz", b"no gzip"),
        ("a.csv.gz", gzip.compress(b"a,b\n" * 1000, mtime=0)[:-9]),
        ("a.parquet", b"no parquet"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ValueError, match=rf"{name} was not read as a table: \S"):
        load(tmp_path / name, label="y")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected a file of records, found none at .*a\.csv"):
        from_csv(tmp_path / "a.csv", label="y")
