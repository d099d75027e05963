#!/usr/bin/env python3
"""Event files that gradus writes, opened by the real tensorboard package.

    python tensorboard_test.py [TRACKER_TOOL]

Exits 77 with a reason where tensorboard is absent.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing import (
        event_accumulator, event_file_loader, plugin_event_multiplexer
    )
    from tensorboard.plugins.hparams import metadata as hparams_metadata
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BUILD = os.environ.get("GRADUS_BUILD", os.path.join(os.path.dirname(__file__),
                                                    "../../build/release"))
TOOL = sys.argv[1] if len(sys.argv) > 1 else os.path.join(BUILD, "bin/tracker_tool")
root = tempfile.mkdtemp(prefix="gradus_tensorboard_")
subprocess.run([TOOL, root], check=True)
folder = os.path.join(root, "resumed")
files = sorted(os.listdir(folder))
assert len(files) == 2 and all(name.startswith("events.out.tfevents.") for name in files), files

# Every record is whole and its checksums hold.
for name in files:
    events = list(event_file_loader.RawEventFileLoader(os.path.join(folder, name)).Load())
    assert len(events) > 70, len(events)

everything = {"scalars": 0, "tensors": 0}
accumulator = event_accumulator.EventAccumulator(folder, size_guidance=everything).Reload()
tags = accumulator.Tags()
assert set(tags["scalars"]) == {"train/loss", "eval/accuracy", "test/runtime"}, tags
losses = {event.step: event.value for event in accumulator.Scalars("train/loss")}
assert sorted(losses) == list(range(1, 321)), "steps after the resume replace those before"
for step, value in losses.items():
    want = 1 / step + (1.0 if step > 250 else 0.0)
    assert value == struct.unpack("f", struct.pack("f", want))[0], (step, value, want)
assert len(accumulator.Scalars("train/loss")) == 320, "superseded steps are still there"

# The arguments and the config as text, as SummaryWriter.add_text leaves them.
assert {"args/text_summary", "model_config/text_summary"} <= set(tags["tensors"]), tags
text = tensor_util.make_ndarray(accumulator.Tensors("args/text_summary")[0].tensor_proto)
assert text.shape == (1,), text.shape
args = json.loads(text[0])
assert args["learning_rate"] == 5e-5 and args["text"] == 'ünïcode "quoted"' and args[
    "none"] is None, args
assert accumulator.SummaryMetadata("args/text_summary").plugin_data.plugin_name == "text"

# Hyperparameters, as the hparams plugin reads them.
multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(folder).Reload()
content = multiplexer.SummaryMetadata(".",
                                      hparams_metadata.SESSION_START_INFO_TAG).plugin_data.content
start = hparams_metadata.parse_session_start_info_plugin_data(content)
assert start.hparams["learning_rate"].number_value == 5e-5 and start.hparams[
    "optim"].string_value == "adamw_torch_fused"
assert start.hparams["bf16"].WhichOneof("kind") == "bool_value" and "none" not in start.hparams
experiment = hparams_metadata.parse_experiment_plugin_data(
    multiplexer.SummaryMetadata(".", hparams_metadata.EXPERIMENT_TAG).plugin_data.content)
assert {info.name for info in experiment.hparam_infos
       } == {"learning_rate", "optim", "bf16", "seed", "text"}
assert [info.name.tag for info in experiment.metric_infos] == ["train/loss", "eval/loss"]
end = hparams_metadata.parse_session_end_info_plugin_data(
    multiplexer.SummaryMetadata(".", hparams_metadata.SESSION_END_INFO_TAG).plugin_data.content)
assert end.status == 1, end

# A histogram, as SummaryWriter.add_histogram leaves it.
accumulator = event_accumulator.EventAccumulator(os.path.join(root, "histograms"),
                                                 size_guidance={"histograms": 0}).Reload()
[event] = accumulator.Histograms("weights/a")
found = event.histogram_value
assert event.step == 7 and (found.min, found.max, found.num, found.sum,
                            found.sum_squares) == (-1, 2, 3, 1.5, 5.25), found
assert list(found.bucket_limit) == [-1.5, 0, 1, 2.5] and list(found.bucket) == [0, 1, 1, 1], found

# What is logged after training takes nothing away from the curves of the training.
evaluated = os.path.join(root, "evaluated")
assert len(os.listdir(evaluated)) == 3, os.listdir(evaluated)
accumulator = event_accumulator.EventAccumulator(evaluated, size_guidance=everything).Reload()
steps = {
    tag: [event.step for event in accumulator.Scalars(tag)]
    for tag in accumulator.Tags()["scalars"]
}
assert steps["train/loss"] == list(range(1, 21)), steps
assert steps["train/train_runtime"] == [20] and steps["eval/loss"] == [20], steps
assert sorted(steps["test/loss"]) == [0, 20], steps

print(f"tensorboard read {len(losses)} steps, {len(tags['scalars'])} scalars, text and "
      f"hyperparameters")
