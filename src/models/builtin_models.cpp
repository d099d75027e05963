#include "models/builtin_models.h"

#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"

namespace gradus {

std::vector<BuiltinModel> builtin_models() {
  std::vector<BuiltinModel> models;
  for (const auto& folder : {gpt2_models(), llama_models()})
    models.insert(models.end(), folder.begin(), folder.end());
  return models;
}

}  // namespace gradus
