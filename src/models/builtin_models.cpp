#include "models/builtin_models.h"

#include "models/bart/bart.h"
#include "models/bert/bert.h"
#include "models/bigbird/bigbird.h"
#include "models/convnext/convnext.h"
#include "models/distilbert/distilbert.h"
#include "models/gpt2/gpt2.h"
#include "models/hubert/hubert.h"
#include "models/llama/llama.h"
#include "models/resnet/resnet.h"
#include "models/t5/t5.h"
#include "models/vit/vit.h"
#include "models/wav2vec2/wav2vec2.h"

namespace gradus {
namespace {

struct Architecture {
  std::vector<BuiltinModel> (*models)();
  std::vector<ModelDefaults> (*defaults)();
};

// One row for each folder.
constexpr Architecture kArchitectures[] = {
    {bart_models, bart_defaults},
    {bert_models, bert_defaults},
    {bigbird_models, bigbird_defaults},
    {convnext_models, convnext_defaults},
    {distilbert_models, distilbert_defaults},
    {gpt2_models, gpt2_defaults},
    {hubert_models, hubert_defaults},
    {llama_models, llama_defaults},
    {resnet_models, resnet_defaults},
    {t5_models, t5_defaults},
    {vit_models, vit_defaults},
    {wav2vec2_models, wav2vec2_defaults},
};

}  // namespace

std::vector<BuiltinModel> builtin_models() {
  std::vector<BuiltinModel> models;
  for (const auto& architecture : kArchitectures)
    for (auto& model : architecture.models()) models.push_back(std::move(model));
  return models;
}

std::vector<ModelDefaults> builtin_defaults() {
  std::vector<ModelDefaults> defaults;
  for (const auto& architecture : kArchitectures)
    for (auto& entry : architecture.defaults()) defaults.push_back(std::move(entry));
  return defaults;
}

}  // namespace gradus
