#include <gradus/trainers/ctc.h>

namespace gradus {

CTCTrainer::CTCTrainer(TrainerOptions options) : Trainer(std::move(options)) {
  loss_is_scaled_for_ga = false;
}

std::optional<torch::Tensor> CTCTrainer::get_num_items_in_batch(const std::vector<Batch>&) const {
  return std::nullopt;
}

StepTraits CTCTrainer::step_traits() const {
  return {.recordable = false, .reads_logits = !is_exactly<CTCTrainer>()};
}

}  // namespace gradus
