"""The skill sql: the same questions to DuckDB and to SQLite, formats, refusals and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

ORDERS = "id,person,amount,zip,day\n1,ada,10.5,01234,2026-11-01\n2,bob,20,01235,2026-11-02\n3,ada,,01236,2026-11-03\n"
PEOPLE = '{"people": [{"person": "ada", "city": "Köln"}, {"person": "bob", "city": "Ulm"}]}'
JOIN = "SELECT city, count(*) AS n, sum(amount) AS total FROM orders JOIN people USING (person) GROUP BY 1 ORDER BY 1"


@pytest.fixture(params=["duckdb", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ask(
    runner: SkillRunner, engine: str, query: str, files: str = "orders.csv", more: str = "", code: int = 0
) -> Any:
    await runner.write(query_sql=query)
    line = f"query_tables.py {files} --engine {engine} --query @query.sql {more}"
    return await runner.json("sql", line, exit_code=code)


async def test_a_join_of_two_files_has_the_right_numbers(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS, people_json=PEOPLE)
    found = await ask(runner, engine, JOIN, "orders.csv people.json", "--out out/cities.json")
    assert json.loads(await runner.read("out/cities.json")) == [
        {"city": "Köln", "n": 2, "total": 10.5},
        {"city": "Ulm", "n": 1, "total": 20},
    ]
    assert (found["rows"], found["table"][0]) == (2, "| city | n | total |")
    assert found["engine"].lower().startswith(engine)


async def test_the_schema_has_types_missing_values_and_examples(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS)
    found = await runner.json("sql", f"query_tables.py sales=orders.csv --engine {engine}")
    [table] = found["tables"]
    columns = {column["name"]: column for column in table["columns"]}
    assert (table["name"], table["from"], table["rows"]) == ("sales", "orders.csv", 3)
    assert columns["zip"]["examples"] == ["01234", "01235", "01236"]
    assert columns["zip"]["type"] in ("VARCHAR", "TEXT")
    assert (columns["amount"]["missing"], columns["amount"]["from"]) == (1, "10.5")
    assert (columns["day"]["from"], columns["day"]["to"]) == ("2026-11-01", "2026-11-03")


async def test_a_workbook_has_a_table_for_each_sheet_also_without_a_package(runner: SkillRunner) -> None:
    book = (
        "import openpyxl, datetime\nb = openpyxl.Workbook()\ns = b.active\ns.title = 'Orders'\n"
        "s.append(['person', 'amount', 'day'])\ns.append(['ada', 10.5, datetime.date(2026, 11, 1)])\n"
        "s.append(['bob', 20, datetime.date(2026, 11, 2)])\np = b.create_sheet('The People')\n"
        "p.append(['person', 'city'])\np.append(['ada', 'Köln'])\np.append(['bob', 'Ulm'])\nb.save('book.xlsx')\n"
    )
    await runner.write(book_py=book)
    await runner.bash("python3 book.py")
    query = "SELECT city, amount, day FROM book_orders JOIN book_the_people USING (person) ORDER BY city"
    rows = ["| Köln | 10.5 | 2026-11-01 |", "| Ulm | 20 | 2026-11-02 |"]
    found = await ask(runner, "sqlite", query, "book.xlsx")
    assert found["table"][2:] == rows
    found = await runner.without_packages("sql", "query_tables.py book.xlsx --query @query.sql", exit_code=0)
    assert found["table"][2:] == rows
    assert found["notes"][0].startswith("DuckDB is not installed")
    found = await ask(runner, "duckdb", query, "book.xlsx")
    assert found["table"][2:] == rows
    answer = await runner.json("sql", "query_tables.py book.xlsx --sheet Nobody", exit_code=1)
    assert answer["error"] == "book.xlsx has no sheet 'Nobody'; there are: Orders, The People."


async def test_parquet_is_read_by_duckdb_and_without_it_the_package_is_named(runner: SkillRunner) -> None:
    await runner.write(make_py="import duckdb\nduckdb.sql(\"COPY (SELECT 7 AS n, 'x|y' AS t) TO 'n.parquet'\")\n")
    await runner.bash("python3 make.py")
    found = await ask(runner, "duckdb", "SELECT n * 6 AS answer, t FROM n", "n.parquet")
    assert found["table"][2:] == ["| 42 | x\\|y |"]
    answer = await runner.without_packages("sql", "query_tables.py n.parquet", exit_code=3)
    assert (answer["missing"], answer["fix"]) == (["duckdb"], "pip install duckdb")


REFUSED = [
    "DROP TABLE orders",
    "INSERT INTO orders SELECT * FROM orders",
    "SELECT 1; SELECT 2",
    "ATTACH 'other.db' AS other",
    "COPY orders TO 'stolen.csv'",
    "EXPLAIN ANALYZE COPY orders TO 'stolen.csv'",
    "SELECT * FROM read_csv('/mnt/user-data/workspace/secret.csv')",
    "SELECT * FROM '/mnt/user-data/workspace/secret.csv'",
    "SELECT * FROM glob('/mnt/user-data/workspace/*')",
    "SET memory_limit = '90GB'",
    "PRAGMA writable_schema = 1",
    "-- nothing",
    "SELEC 1",
]


async def test_a_query_reaches_nothing_but_the_tables(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS, secret_csv="secret\n4711\n")
    for query in REFUSED:
        answer = await ask(runner, engine, query, code=1)
        assert answer["error"], query
        assert "4711" not in str(answer)
    assert await runner.read("orders.csv") == ORDERS.encode()
    assert (await runner.bash("ls")).output.split() == ["orders.csv", "query.sql", "secret.csv"]


async def test_a_source_is_never_the_place_of_the_result(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS)
    answer = await ask(runner, engine, "SELECT 1", more="--out ./orders.csv", code=1)
    assert answer["error"] == "--out is one of the sources, which are never changed."
    assert await runner.read("orders.csv") == ORDERS.encode()


async def test_a_query_without_end_is_ended(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS)
    endless = {
        "duckdb": "SELECT count(*) FROM range(100000000000) a, range(1000000) b",
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    }
    answer = await ask(runner, engine, endless[engine], more="--timeout 2", code=1)
    assert answer["error"].startswith("It took longer than 2 s.")


async def test_a_query_that_needs_more_memory_is_refused(runner: SkillRunner, engine: str) -> None:
    await runner.write(orders_csv=ORDERS)
    hungry = {
        "duckdb": "SELECT length(string_agg(repeat('x', 1000000) || a.range)) FROM range(500) a",
        "sqlite": "SELECT length(group_concat(hex(zeroblob(1000000)))) FROM orders a, orders b, orders c, orders d",
    }
    answer = await ask(runner, engine, hungry[engine], more="--memory-mb 64", code=1)
    assert "memory" in answer["error"].lower()


async def test_tables_of_other_encodings_and_delimiters_are_read(runner: SkillRunner, engine: str) -> None:
    await runner.sandbox.write("/mnt/user-data/workspace/orte.csv", "Ort;Straße\nKöln;Große Straße\n".encode("cp1252"))
    found = await ask(runner, engine, 'SELECT "Straße" FROM orte WHERE "Ort" = \'Köln\'', "orte.csv")
    assert found["table"][2:] == ["| Große Straße |"]
    assert found["notes"] == ["orte.csv was read as cp1252."]


async def test_what_cannot_be_read_is_named(runner: SkillRunner) -> None:
    await runner.write(broken_json="{", broken_xlsx="no zip", page_html="<p>")
    for name, said in (
        ("broken.json", "broken.json is not JSON"),
        ("broken.xlsx", "broken.xlsx cannot be read"),
        ("page.html", "page.html: its suffix is none of"),
        ("missing.csv", "missing.csv: there is no such file."),
    ):
        answer = await runner.json("sql", f"query_tables.py {name}", exit_code=1)
        assert answer["error"].startswith(said)
