#!/usr/bin/env python3
"""Summarises a JUnit file of ctest: failures, skips by reason, the slowest tests, and totals.

usage: test_summary.py RESULTS.xml [REASONS]

RESULTS.xml  the file that `ctest --output-junit` wrote
REASONS      lines "REGEX: REASON" for tests that may take longer than 10 s; lines that begin with # are comments

With REASONS, prints tests over 10 s in a table. A test without a reason in REASONS belongs to the long tests, which have names that begin with
"Long" (tests/CMakeLists.txt).
Ends with "PRESET: N passed, N failed, N skipped", and the skips within tests that run pytest (conftest.py). Exit status: 0 if no test failed, 1 otherwise, 2 for bad input.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

SLOW_SECONDS = 10
SLOWEST = 10
WIDTH = 110


def read_reasons(path):
    reasons = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, separator, reason = line.partition(": ")
        if not separator:
            raise ValueError(
                f"{path}:{number}: '{line}' has no ': ' between a regular expression and a reason"
            )
        reasons.append((re.compile(pattern), reason.strip()))
    return reasons


def why_skipped(output):
    """The reason that GoogleTest, a shell script or a Python test printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for before, line in zip(lines, lines[1:]):
        if before.endswith(": Skipped"):
            return line
    return lines[-1] if lines else "no reason printed"


def skips_of_pytest(output):
    """The skips within a test that runs pytest, by reason, as conftest.py prints them."""
    found = collections.Counter()
    match = re.search(r"^skipped tests and files of pytest: \d+\n((?: +\d+  .*\n?)*)", output, re.MULTILINE)
    for line in match[1].splitlines() if match else ():
        count, reason = line.split(maxsplit=1)
        found[reason] += int(count)
    return found


def shortened(text):
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        suite = ElementTree.parse(arguments[0]).getroot()
        reasons = read_reasons(arguments[1]) if len(arguments) == 2 else []
    except (OSError, ValueError, ElementTree.ParseError) as error:
        print(f"test_summary: {error}", file=sys.stderr)
        return 2
    tests = [
        (case.get("name"), float(case.get("time", 0)), case.get("status"), case.findtext("system-out") or "")
        for case in suite.iter("testcase")
    ]
    by_status = collections.Counter(status for _, _, status, _ in tests)
    failed = [name for name, _, status, _ in tests if status == "fail"]
    skips = collections.Counter(why_skipped(output) for _, _, status, output in tests if status == "notrun")
    in_pytest = {
        name: found
        for name, _, status, output in tests
        if status != "notrun" and (found := skips_of_pytest(output))
    }
    tests.sort(key=lambda test: -test[1])

    print(f"\nslowest tests ({sum(time for _, time, _, _ in tests):.0f} s in all)")
    for name, time, _, _ in tests[:SLOWEST]:
        print(f"  {time:7.1f} s  {shortened(name)}")
    if reasons:
        slow = [(name, time) for name, time, _, _ in tests if time > SLOW_SECONDS]
        print(f"\ntests over {SLOW_SECONDS} s: {len(slow)}")
        for name, time in slow:
            reason = next(
                (reason for pattern, reason in reasons if pattern.search(name)), "NO REASON: name it Long…"
            )
            print(f"  {time:7.1f} s  {shortened(name)}\n             {reason}")
    print(f"\nskipped tests: {sum(skips.values())}")
    for reason, count in skips.most_common():
        print(f"  {count:5}  {shortened(reason)}")
    for name, found in in_pytest.items():
        print(f"\nskipped within {name}: {sum(found.values())}")
        for reason, count in found.most_common():
            print(f"  {count:5}  {shortened(reason)}")
    if failed:
        print(f"\nfailed tests: {len(failed)}")
        for name in failed:
            print(f"  {name}")
    label = pathlib.Path(arguments[0]).resolve().parent.name
    within = sum(sum(found.values()) for found in in_pytest.values())
    print(
        f"\n{label}: {by_status['run']} passed, {len(failed)} failed, {sum(skips.values())} skipped"
        + (f", {within} skipped within tests of Python" if within else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
