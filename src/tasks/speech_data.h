#pragma once

#include <gradus/audio/audio_dataset.h>
#include <gradus/config/option_set.h>

#include "tasks/model_source.h"

namespace gradus::tasks {

/// The rows of a `--dataset_name`. `splits` are names joined by "+", as in "train+validation".
/// Throws G-TASK-9 (usage) when the folder or a column is not there.
std::shared_ptr<const Dataset> open_speech(const std::string& dataset_name,
                                           const std::string& splits, const std::string& column,
                                           int64_t skip_bad_rows);

/// At most that many rows from the front.
std::shared_ptr<const Dataset> first_clips(std::shared_ptr<const Dataset> rows,
                                           std::optional<int64_t> most);

/// Throws G-TASK-9 (usage) when a row has no such column; `flag` is what names it.
void need_column(const Dataset& rows, const std::string& column, const char* flag);

/// The feature extractor of the model's folder, or of `--config_name`; for fresh weights without
/// either the usual one, with an attention mask for models that take one.
Wav2Vec2FeatureExtractor load_feature_extractor(const ModelFlags& flags,
                                                const nlohmann::json& config);

}  // namespace gradus::tasks
