#include "models/builtin_models.h"

#include "models/bert/bert.h"
#include "models/distilbert/distilbert.h"
#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"
#include "models/t5/t5.h"

namespace gradus {

std::vector<BuiltinModel> builtin_models() {
  std::vector<BuiltinModel> models;
  for (const auto& folder :
       {bert_models(), distilbert_models(), gpt2_models(), llama_models(), t5_models()})
    models.insert(models.end(), folder.begin(), folder.end());
  return models;
}

}  // namespace gradus
