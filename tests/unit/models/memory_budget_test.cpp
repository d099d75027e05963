// activation_memory_budget: the memory that a forward pass leaves behind, counted byte by byte, and
// numbers that stay what they were.
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <gradus/core/numpy_random.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <mutex>
#include <unordered_map>

namespace gradus {
namespace {

using nlohmann::json;

/// LibTorch's CPU memory, with a count of the bytes in use.
class CountedMemory : public c10::Allocator {
 public:
  /// The only one; from the first call on all CPU tensors get their memory here.
  static CountedMemory& instance() {
    static auto* const only = [] {
      auto memory = std::make_unique<CountedMemory>();
      c10::SetCPUAllocator(memory.get(), /*priority=*/1);
      return memory.release();  // it outlives all tensors
    }();
    return *only;
  }
  at::DataPtr allocate(size_t bytes) override {
    auto* data = theirs_->raw_allocate(bytes);
    const std::lock_guard lock(mutex_);
    sizes_[data] = static_cast<int64_t>(bytes);
    live += static_cast<int64_t>(bytes);
    peak = std::max(peak, live);
    return {data, data, &give_back, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t live = 0, peak = 0;

 private:
  static void give_back(void* data) {
    auto& memory = instance();
    {
      const std::lock_guard lock(memory.mutex_);
      const auto found = memory.sizes_.find(data);
      if (found != memory.sizes_.end()) {
        memory.live -= found->second;
        memory.sizes_.erase(found);
      }
    }
    memory.theirs_->raw_deallocate(data);
  }

  c10::Allocator* theirs_ = c10::GetCPUAllocator();
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
};

/// A model with so many blocks in each stack, and a batch that needs much more memory than weights.
struct StackedModel {
  std::string name;
  std::function<std::shared_ptr<Model>(int64_t blocks)> model;
  std::function<Batch()> batch;
  int64_t stacks = 1;
};

void PrintTo(const StackedModel& model, std::ostream* to) { *to << model.name; }

std::shared_ptr<Model> built_model(ModelTask task, const json& config) {
  torch::manual_seed(1);
  return model_from_config(task, config);
}

Batch text_rows() {
  torch::manual_seed(2);
  const auto ids = torch::randint(3, 50, {8, 48}, torch::kLong);
  return {{"input_ids", ids}, {"labels", ids}};
}

json stacked_llama(int64_t blocks) {
  return {{"model_type", "llama"},       {"vocab_size", 50},         {"hidden_size", 32},
          {"intermediate_size", 88},     {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"num_hidden_layers", blocks}, {"attention_dropout", 0.1}};
}

json stacked_bart(int64_t blocks) {
  return {{"model_type", "bart"},
          {"vocab_size", 50},
          {"d_model", 32},
          {"encoder_layers", blocks},
          {"decoder_layers", blocks},
          {"encoder_ffn_dim", 128},
          {"decoder_ffn_dim", 128},
          {"encoder_attention_heads", 4},
          {"decoder_attention_heads", 4},
          {"max_position_embeddings", 64},
          {"attention_dropout", 0.1}};
}

std::vector<StackedModel> stacked_models() {
  std::vector<StackedModel> cases;
  cases.push_back({"gpt2",
                   [](int64_t blocks) {
                     return built_model(ModelTask::causal_lm, {{"model_type", "gpt2"},
                                                               {"vocab_size", 50},
                                                               {"n_positions", 64},
                                                               {"n_embd", 32},
                                                               {"n_layer", blocks},
                                                               {"n_head", 4}});
                   },
                   text_rows});
  cases.push_back(
      {"llama",
       [](int64_t blocks) { return built_model(ModelTask::causal_lm, stacked_llama(blocks)); },
       text_rows});
  cases.push_back({"lora",
                   [](int64_t blocks) {
                     LoraConfig config{.r = 4, .target_modules = "all-linear"};
                     config.lora_dropout = 0.1;
                     config.init_lora_weights = "false";
                     return std::static_pointer_cast<Model>(get_peft_model(
                         model_from_config(ModelTask::causal_lm, stacked_llama(blocks)), config));
                   },
                   text_rows});
  cases.push_back({"bert",
                   [](int64_t blocks) {
                     return built_model(ModelTask::masked_lm, {{"model_type", "bert"},
                                                               {"vocab_size", 50},
                                                               {"hidden_size", 32},
                                                               {"intermediate_size", 128},
                                                               {"num_attention_heads", 4},
                                                               {"num_hidden_layers", blocks},
                                                               {"max_position_embeddings", 64}});
                   },
                   text_rows});
  cases.push_back({"t5",
                   [](int64_t blocks) {
                     return built_model(ModelTask::seq2seq_lm, {{"model_type", "t5"},
                                                                {"vocab_size", 50},
                                                                {"d_model", 32},
                                                                {"d_kv", 8},
                                                                {"d_ff", 128},
                                                                {"num_layers", blocks},
                                                                {"num_heads", 4},
                                                                {"pad_token_id", 0},
                                                                {"decoder_start_token_id", 0}});
                   },
                   text_rows, 2});
  cases.push_back(
      {"bart",
       [](int64_t blocks) { return built_model(ModelTask::seq2seq_lm, stacked_bart(blocks)); },
       text_rows, 2});
  cases.push_back({"vit",
                   [](int64_t blocks) {
                     return built_model(ModelTask::image_classification,
                                        {{"model_type", "vit"},
                                         {"hidden_size", 32},
                                         {"intermediate_size", 128},
                                         {"num_attention_heads", 4},
                                         {"num_hidden_layers", blocks},
                                         {"image_size", 32},
                                         {"patch_size", 4},
                                         {"hidden_dropout_prob", 0.1}});
                   },
                   [] {
                     torch::manual_seed(2);
                     return Batch{{"pixel_values", torch::randn({4, 3, 32, 32})},
                                  {"labels", torch::tensor({0, 1, 0, 1})}};
                   }});
  cases.push_back({"wav2vec2",
                   [](int64_t blocks) {
                     return built_model(ModelTask::ctc, {{"model_type", "wav2vec2"},
                                                         {"vocab_size", 20},
                                                         {"hidden_size", 32},
                                                         {"intermediate_size", 128},
                                                         {"num_attention_heads", 4},
                                                         {"num_hidden_layers", blocks},
                                                         {"conv_dim", {8, 8}},
                                                         {"conv_kernel", {10, 3}},
                                                         {"conv_stride", {5, 2}},
                                                         {"num_conv_pos_embeddings", 4},
                                                         {"num_conv_pos_embedding_groups", 2},
                                                         {"layerdrop", 0.0},
                                                         {"ctc_zero_infinity", true}});
                   },
                   [] {
                     torch::manual_seed(2);
                     return Batch{{"input_values", torch::randn({4, 640})},
                                  {"labels", torch::randint(1, 20, {4, 6}, torch::kLong)}};
                   }});
  return cases;
}

void set_budget(Model& model, double budget) {
  GradientCheckpointing how;
  how.memory_budget = budget;
  model.gradient_checkpointing_enable(how);
}

torch::Tensor loss_with_seed(Model& model, const Batch& batch) {
  torch::manual_seed(3);
  numpy_random().seed(3);
  ForwardOptions options;
  options.need_logits = false;
  return model.forward(batch, options).loss();
}

class MemoryBudget : public testing::TestWithParam<StackedModel> {};

/// Bytes that the forward pass leaves for the backward pass, and the most of the whole step.
struct MemoryUse {
  int64_t kept = 0, most = 0;
};
MemoryUse memory_use_of(const StackedModel& item, int64_t blocks, std::optional<double> budget) {
  auto& memory = CountedMemory::instance();
  const auto batch = item.batch();
  const auto model = item.model(blocks);
  model->train();
  if (budget) set_budget(*model, *budget);
  loss_with_seed(*model, batch).backward();  // gradients and tables are there from now on
  const int64_t before = memory.live;
  memory.peak = before;
  const auto loss = loss_with_seed(*model, batch);
  const int64_t kept = memory.live - before;
  loss.backward();
  return {kept, memory.peak - before};
}

TEST_P(MemoryBudget, IsKept) {
  constexpr int64_t kBlocks = 10;
  const auto& item = GetParam();
  const auto whole = memory_use_of(item, kBlocks, std::nullopt);
  const double block = double(whole.kept - memory_use_of(item, kBlocks / 2, std::nullopt).kept) /
                       (double(kBlocks) / 2);  // one of each stack
  const double around = double(whole.kept) - kBlocks * block;
  EXPECT_GT(kBlocks * block, around) << "the blocks are what counts";
  int64_t before = whole.kept;
  for (const double budget : {0.9, 0.75, 0.5, 0.3, 0.1}) {
    const auto found = memory_use_of(item, kBlocks, budget);
    const double share = (double(found.kept) - around) / (kBlocks * block);
    RecordProperty(fmt::format("kept_with_{}", budget), fmt::format("{:.3f}", share));
    EXPECT_LE(share, budget) << item.name;
    EXPECT_GT(share, budget - 1.5 / kBlocks) << item.name << " recomputes more than need be";
    EXPECT_LT(found.kept, before);
    EXPECT_LT(found.most, whole.most) << item.name << " at " << budget;
    before = found.kept;
  }
  EXPECT_EQ(memory_use_of(item, kBlocks, 0.01).kept, memory_use_of(item, kBlocks, 0).kept);
}

TEST_P(MemoryBudget, ChangesNoBit) {
  const auto& item = GetParam();
  const auto batch = item.batch();
  const auto model = item.model(4);
  model->train();
  const auto loss = loss_with_seed(*model, batch);
  loss.backward();
  std::vector<std::pair<std::string, torch::Tensor>> gradients;
  for (const auto& [name, parameter] : trainable_parameters(*model))
    if (parameter.grad().defined()) gradients.emplace_back(name, parameter.grad().clone());
  ASSERT_FALSE(gradients.empty());
  const auto next = torch::rand({2});
  for (const double budget : {0.0, 0.3, 0.5, 0.8}) {
    set_budget(*model, budget);
    model->zero_grad();
    const auto again = loss_with_seed(*model, batch);
    again.backward();
    EXPECT_TRUE(torch::equal(again, loss)) << item.name << " at " << budget;
    auto place = gradients.begin();
    for (const auto& [name, parameter] : trainable_parameters(*model))
      if (parameter.grad().defined()) {
        ASSERT_EQ(place->first, name);
        EXPECT_TRUE(torch::equal(parameter.grad(), place->second)) << name << " at " << budget;
        ++place;
      }
    EXPECT_TRUE(torch::equal(torch::rand({2}), next)) << "random numbers go on as before";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryBudget, testing::ValuesIn(stacked_models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gradus
