#include "engine/recorded_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {

Batch clone_of(const Batch& inputs) {
  auto copies = inputs.tensors();
  for (auto& copy : copies)
    if (copy.defined()) copy = copy.clone();
  return inputs.with_copies(std::move(copies));
}

std::string shape_text(const Batch& inputs) {
  std::string text;
  for (const auto& [name, value] : inputs)
    if (value.defined())
      text += fmt::format(" {}:{}[{}]{}", name, int(value.scalar_type()),
                          fmt::join(value.sizes(), ","), inputs.known_all_ones(name) ? "!" : "");
  return text;
}

}  // namespace gradus
