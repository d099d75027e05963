"""tensorboard_dump.py FOLDER...: what the tensorboard package reads in each, as one JSON document:
{"scalars": {tag: [[step, value]]}, "texts": {tag: text}, "hparams": {name: value}, "histograms":
{tag: [step]}} a folder. Exits 77 where tensorboard is absent.
"""

import json
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import metadata
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

EVERYTHING = {"scalars": 0, "tensors": 0, "histograms": 0}


def dump(folder):
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance=EVERYTHING).Reload()
    tags = accumulator.Tags()
    content = accumulator.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(content).hparams
    texts = {}
    for tag in tags["tensors"]:
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "text":
            [text] = tensor_util.make_ndarray(accumulator.Tensors(tag)[0].tensor_proto)
            texts[tag] = text.decode()
    return {
        "scalars": {
            tag: [[event.step, event.value] for event in accumulator.Scalars(tag)]
            for tag in tags["scalars"]
        },
        "texts": texts,
        "hparams": {
            name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()
        },
        "histograms": {
            tag: [event.step for event in accumulator.Histograms(tag)]
            for tag in tags["histograms"]
        },
    }


print(json.dumps([dump(folder) for folder in sys.argv[1:]]))
