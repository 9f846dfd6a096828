import xml.etree.ElementTree as ElementTree

from diagnosis.accuracy_junit import CheckedCase, junit_report

AGREES = CheckedCase(pipeline="a/b", exit_code=0, sentence="fine", seconds=1.25)
DIVERGES = CheckedCase(
    pipeline="my.py:X", exit_code=1, sentence="max is <wrong> & so on", lines=["Verdict", "1 < 2"]
)
UNREADABLE = CheckedCase(pipeline="c", exit_code=2, sentence="no \x00 such\ud800 file")


def test_each_case_is_told_apart():
    suite = ElementTree.fromstring(junit_report("//x:y", [AGREES, DIVERGES, UNREADABLE]))[0]
    counts = {key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")}
    assert counts == {
        "name": "accuracy",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    assert [case.get("name") for case in suite] == ["a/b", "my.py:X", "c"]
    assert {case.get("classname") for case in suite} == {"//x:y"}
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]
    assert suite[0].get("time") == "1.250"
    assert suite[1][0].get("message") == "max is <wrong> & so on"
    assert suite[1][0].text == "Verdict\n1 < 2"


def test_what_xml_cannot_hold_is_replaced():
    report = junit_report("//x:y", [UNREADABLE])
    report.encode()
    message = ElementTree.fromstring(report)[0][0][0].get("message")
    assert message == "no \N{REPLACEMENT CHARACTER} such\N{REPLACEMENT CHARACTER} file"


def test_a_shard_without_a_pipeline_reports_no_case():
    suite = ElementTree.fromstring(junit_report("//x:y", []))[0]
    assert (suite.get("tests"), len(suite)) == ("0", 0)
