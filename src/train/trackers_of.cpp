#include "train/trackers_of.h"

#include <gradus/config/training_arguments.h>
#include <gradus/trackers/tracker.h>
#include <gradus/train/callbacks.h>

namespace gradus {

std::vector<std::shared_ptr<TrainerCallback>> tracker_callbacks(const TrainingArguments& args) {
  std::vector<std::shared_ptr<TrainerCallback>> callbacks;
  for (const auto& name : args.report_to.words()) {
    const std::string class_name =
        name == "tensorboard" ? "TensorBoardCallback" : name + "Callback";
    for (auto& tracker : make_trackers({name}, *args.output_dir))
      callbacks.push_back(std::make_shared<TrackerCallback>(class_name, std::move(tracker)));
  }
  return callbacks;
}

}  // namespace gradus
