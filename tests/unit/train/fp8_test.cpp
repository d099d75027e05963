// --fp8: which layers it chooses, what it refuses, and a run in the plain form of its products.
#include <gradus/kernels/form.h>
#include <gradus/models/auto_model.h>

#include <set>

#include "models/fp8_layers.h"
#include "regression.h"

namespace gradus::testing {
namespace {

std::shared_ptr<PreTrainedModel> gpt2_for_fp8() {
  torch::manual_seed(2);
  return AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                            {"vocab_size", 128},
                                            {"n_positions", 16},
                                            {"n_embd", 128},
                                            {"n_layer", 2},
                                            {"n_head", 2},
                                            {"resid_pdrop", 0.0},
                                            {"embd_pdrop", 0.0},
                                            {"attn_pdrop", 0.0}});
}

std::shared_ptr<Dataset> rows_for_fp8() {
  const auto ids = torch::arange(64 * 8).reshape({64, 8}).remainder(31);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

TrainingArguments fp8_arguments(const Box& box, const std::string& name) {
  TrainingArguments args{.output_dir = box.dir(name),
                         .max_steps = 12,
                         .learning_rate = 1e-3,
                         .bf16 = true,
                         .logging_steps = 1,
                         .disable_tqdm = true,
                         .save_steps = 6,
                         .use_cpu = true,
                         .bf16_mode = "master",
                         .fp8 = true};
  args.full_determinism = true;
  return args;
}

/// Operations with their own backward on the CPU, too, while it lives.
struct FusedForm {
  kernels::Form before = kernels::set_form(kernels::Form::fused);
  ~FusedForm() { kernels::set_form(before); }
};

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.id() + ": " + error.message();
  }
  return "";
}

std::vector<double> run_losses(const TrainingArguments& args,
                               const std::optional<std::string>& resume = std::nullopt) {
  auto given = args;
  given.resume_from_checkpoint = resume;
  Trainer trainer({.model = gpt2_for_fp8(), .args = given, .train_dataset = rows_for_fp8()});
  trainer.train(resume ? Resume::from(*resume) : Resume::none());
  std::vector<double> values;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("loss")) values.push_back(entry.at("loss").get<double>());
  return values;
}

TEST(Fp8Run, ChoosesTheLinearLayersOfBlocks) {
  const auto model = gpt2_for_fp8();
  const auto weights = fp8_layer_weights(model->named_module());
  std::set<const void*> chosen;
  for (const auto& weight : weights) chosen.insert(weight.unsafeGetTensorImpl());
  for (const auto& entry : model->named_module().named_parameters()) {
    const auto& name = entry.key();
    const bool is_layer = name.find(".h.") != std::string::npos && name.ends_with(".weight") &&
                          name.find("ln_") == std::string::npos;
    EXPECT_EQ(chosen.contains(entry.value().unsafeGetTensorImpl()), is_layer) << name;
  }
  EXPECT_EQ(weights.size(), 8u);
}

TEST(Fp8Run, AModelWithoutSuchLayersIsRefused) {
  const RegressionModel model(1, 2);
  EXPECT_NE(refusal_of([&] {
              fp8_layer_weights(model);
            }).find("G-GPU-2: fp8: the model has no linear layer that it applies to"),
            std::string::npos);
}

TEST(Fp8Run, NeedsBf16WeightsAndAGpu) {
  Box box;
  auto args = fp8_arguments(box, "a");
  args.bf16 = false;
  EXPECT_EQ(refusal_of([&] { args.resolved(); }),
            "G-CONF-4: fp8 needs bfloat16 weights, received bf16=false and bf16_mode=master");
  args.bf16 = true;
  args.bf16_mode = "autocast";
  EXPECT_EQ(refusal_of([&] { args.resolved(); }),
            "G-CONF-4: fp8 needs bfloat16 weights, received bf16=true and bf16_mode=autocast");
  args.bf16_mode = "auto";
  args.zero_stage = 3;
  EXPECT_EQ(refusal_of([&] { args.resolved(); }),
            "G-CONF-4: fp8 with parameters that are shared out among processes (zero_stage 3)");
  EXPECT_NE(refusal_of([&] { run_losses(fp8_arguments(box, "b")); })
                .find("G-GPU-2: fp8 needs a GPU of compute capability 8.9 or above and the CUDA "
                      "plugin, received the CPU"),
            std::string::npos);
}

TEST(Fp8Run, LearnsAsBf16DoesAndResumesWithTheSameBits) {
  Box box;
  const FusedForm fused;
  auto args = fp8_arguments(box, "fp8");
  const auto whole = run_losses(args);
  auto usual_args = fp8_arguments(box, "bf16");
  usual_args.fp8 = false;
  const auto usual = run_losses(usual_args);
  ASSERT_EQ(whole.size(), 12u);
  EXPECT_NE(whole, usual);
  EXPECT_LT(whole.back(), 0.8 * whole.front());
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(whole[i], usual[i], 0.02 * usual[i]) << "step " << i + 1;
  EXPECT_EQ(run_losses(args, (box.run("fp8") / "checkpoint-6").string()), whole);
}

TEST(Fp8Run, CheckpointedBlocksMultiplyInTheSameWay) {
  Box box;
  const FusedForm fused;
  auto args = fp8_arguments(box, "a");
  args.save_strategy = "no";
  args.max_steps = 4;
  const auto kept = run_losses(args);
  args.gradient_checkpointing = true;
  EXPECT_EQ(run_losses(args), kept);
}

}  // namespace
}  // namespace gradus::testing
