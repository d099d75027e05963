#pragma once

#include <gradus/train/callback.h>

#include <memory>
#include <vector>

namespace gradus {

/// The callbacks that `report_to` asks for, in its order.
std::vector<std::shared_ptr<TrainerCallback>> tracker_callbacks(const TrainingArguments& args);

}  // namespace gradus
