// Direct preference optimisation in one override: chosen and rejected in one batch, a frozen
// reference beside the policy.
#include <gradus/gradus.h>

using torch::Tensor;

// Sum of the log-probabilities of the completion tokens of each row.
Tensor sequence_log_probs(const Tensor& logits, const gradus::Batch& inputs) {
  const auto targets = inputs["input_ids"].slice(1, 1).unsqueeze(-1);
  const auto log_probs = logits.slice(1, 0, -1).log_softmax(-1).gather(-1, targets).squeeze(-1);
  return (log_probs * inputs["completion_mask"].slice(1, 1)).sum(-1);
}

class PreferenceTrainer : public gradus::Trainer {
 public:
  PreferenceTrainer(gradus::TrainerOptions options, std::shared_ptr<gradus::Model> reference,
                    double beta)
      : Trainer(std::move(options)), reference_(std::move(reference)), beta_(beta) {
    reference_->to(device());
    reference_->eval();
  }

 protected:
  gradus::Loss compute_loss(gradus::Model& model, gradus::Batch inputs,
                            std::optional<Tensor>) override {
    auto outputs = model.forward(inputs);
    const auto policy =
        sequence_log_probs(outputs["logits"], inputs).chunk(2);  // batch is [chosen, rejected]
    const auto reference = [&] {
      torch::NoGradGuard frozen;
      return sequence_log_probs(reference_->forward(inputs)["logits"], inputs).chunk(2);
    }();
    const auto margin = (policy[0] - reference[0]) - (policy[1] - reference[1]);
    return {.loss = -torch::log_sigmoid(beta_ * margin).mean(), .outputs = outputs};
  }

 private:
  std::shared_ptr<gradus::Model> reference_;
  double beta_;
};

int main() {
  const nlohmann::json config = {{"model_type", "gpt2"}, {"vocab_size", 32},  {"n_positions", 16},
                                 {"n_embd", 32},         {"n_layer", 1},      {"n_head", 2},
                                 {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
  auto policy = gradus::AutoModelForCausalLM::from_config(config);
  auto reference = gradus::AutoModelForCausalLM::from_config(config);
  reference->load_state_dict(policy->state_dict());

  std::vector<gradus::Example> rows;  // prompt 1 2 3; chosen ends in 4s, rejected in 5s
  using Ids = std::vector<int64_t>;
  for (int i = 0; i < 32; ++i)
    rows.push_back({{"prompt_ids", Ids{1, 2, 3}},
                    {"chosen_ids", Ids{4, 4, 4}},
                    {"rejected_ids", Ids{5, 5, 5}}});

  PreferenceTrainer trainer(
      {.model = policy,
       .args = {.output_dir = "runs/preference",
                .per_device_train_batch_size = 8,
                .max_steps = 30,
                .learning_rate = 1e-2,
                .logging_steps = 10,
                .save_strategy = "no",
                .remove_unused_columns = false},
       .data_collator = gradus::DataCollatorForPreference({.pad_token_id = 0}),
       .train_dataset = gradus::from_examples(rows)},
      reference, 0.1);
  return trainer.train().training_loss < 0.69 ? 0 : 1;  // below log 2: it prefers the chosen ones
}
