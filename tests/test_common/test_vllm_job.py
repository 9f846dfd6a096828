from pathlib import Path

from test_common.vllm_job import VllmJob


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = VllmJob(
        model_path="m",
        rows=[[1, 2], [3]],
        num_steps=4,
        encoding="float32",
        overrides={"num_hidden_layers": 2},
        num_hidden_layers=2,
        steps=[0, 3],
        filter=["*.mlp"],
    )
    job.write(tmp_path)
    assert VllmJob.read(tmp_path) == job
