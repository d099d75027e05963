#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

struct SpeechFamily;

/// wav2vec 2.0, in the group-norm and the stable layer-norm form, with all heads but those of
/// frames and speakers.
std::vector<BuiltinModel> wav2vec2_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> wav2vec2_defaults();

/// The heads that both families have: body, CTC, sequence classification.
std::vector<BuiltinModel> speech_models(const char* model_type, const SpeechFamily& family);

}  // namespace gradus
