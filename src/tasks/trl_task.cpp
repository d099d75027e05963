#include "tasks/trl_task.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/models/quantized_layers.h>

#include "distributed/process_device.h"

namespace gradus::tasks {
namespace {

constexpr OptionRow<SplitFlags> kSplitRows[] = {
    {&SplitFlags::dataset_train_split, "dataset_train_split", Group::data, any_value(),
     "The split of --dataset_name to train on."},
    {&SplitFlags::dataset_test_split, "dataset_test_split", Group::data, any_value(),
     "The split of --dataset_name to evaluate on."},
    {&SplitFlags::dataset_config, "dataset_config", Group::data, any_value(),
     "Accepted for compatibility: a folder holds one configuration."},
    {&SplitFlags::dataset_streaming, "dataset_streaming", Group::data, any_value(),
     "Must stay false: rows are prepared before training."},
};

constexpr std::string_view kQuantTypes[] = {"nf4"};
constexpr OptionRow<QuantizationFlags> kQuantizationRows[] = {
    {&QuantizationFlags::load_in_4bit, "load_in_4bit", Group::model, any_value(),
     "Keep the frozen weights of the model's blocks in 4 bits (QLoRA); needs use_peft."},
    {&QuantizationFlags::bnb_4bit_quant_type, "bnb_4bit_quant_type", Group::model,
     one_of(kQuantTypes), "The values of the 4 bits: NormalFloat 4."},
    {&QuantizationFlags::use_bnb_nested_quant, "use_bnb_nested_quant", Group::model, any_value(),
     "Keep the scales of the 4-bit weights in 8 bits, too."},
    {&QuantizationFlags::bnb_4bit_quant_storage, "bnb_4bit_quant_storage", Group::model,
     any_value(), "Accepted for compatibility: two weights of 4 bits are kept in a byte."},
    {&QuantizationFlags::load_in_8bit, "load_in_8bit", Group::model, any_value(),
     "Must stay false: weights are kept in 4 bits or as they are."},
};

constexpr OptionRow<TrlModelFlags> kTrlModelRows[] = {
    {&TrlModelFlags::attn_implementation, "attn_implementation", Group::model, any_value(),
     "Accepted for compatibility: the fastest attention that fits is used."},
    {&TrlModelFlags::lora_target_parameters, "lora_target_parameters", Group::model, any_value(),
     "Must stay unset: adapters are on layers, not on single parameters."},
    {&TrlModelFlags::ignore_bias_buffers, "ignore_bias_buffers", Group::model, any_value(),
     "Accepted for compatibility: it helps to debug PyTorch's DDP."},
};

void check_quantization(const QuantizationFlags& flags, const ModelFlags& model,
                        const TrainingArguments& args) {
  const auto refuse = [](const std::string& message, const std::string& advice) {
    throw Error("G-TASK-8", ErrorKind::usage, message, advice);
  };
  if (flags.load_in_8bit)
    refuse("--load_in_8bit is set, but gradus has no weights of 8 bits",
           "Use --load_in_4bit, or leave it out.");
  if (!flags.load_in_4bit) return;
  if (args.do_train && !model.adapter.use_peft)
    refuse("--load_in_4bit freezes the model's weights, but there is no adapter to train",
           "Add --use_peft.");
  if (model.adapter.use_dora)
    refuse("--use_dora reads and changes weights, which --load_in_4bit keeps in 4 bits",
           "Leave one of them out.");
  if (args.world_size() > 1)
    refuse("--load_in_4bit works in one process, received " + std::to_string(args.world_size()),
           "Leave it out with several.");
}

}  // namespace

TrlTask::TrlTask(ModelTask model, nlohmann::json changes)
    : model_task_(model), changes_(std::move(changes)) {
  fresh_.dtype = "float32";  // as trl's scripts load models
}

void TrlTask::add_options(OptionSet& options) {
  tasks::add_options(options, model_);
  tasks::add_options(options, fresh_);
  tasks::add_options(options, data_);
  options.add(splits_, std::span<const OptionRow<SplitFlags>>(kSplitRows));
  options.add(quantization_, std::span<const OptionRow<QuantizationFlags>>(kQuantizationRows));
  options.add(further_, std::span<const OptionRow<TrlModelFlags>>(kTrlModelRows));
}

void TrlTask::check(const TrainingArguments& args) const {
  if (args.do_predict)
    throw Error("G-TASK-3", ErrorKind::usage, fmt::format("the task {} does not predict", name()),
                "Leave --do_predict out; `gradus generate` writes text with a language model.");
  check_data_flags(args, data_, {}, /*splits_train=*/false);
  if (splits_.dataset_streaming)
    throw Error("G-TASK-8", ErrorKind::usage,
                "--dataset_streaming is set, but rows are prepared before training",
                "Leave it out; files are read in blocks.");
  if (further_.lora_target_parameters)
    throw Error("G-TASK-8", ErrorKind::usage,
                "--lora_target_parameters is set, but adapters are on layers, not on parameters",
                "Name layers with --lora_target_modules.");
  check_quantization(quantization_, model_, args);
  check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train});
}

PreparedTask TrlTask::prepare(const TrainingArguments& args) {
  const auto rows = [&](const std::optional<std::string>& file, const std::string& split,
                        std::optional<int64_t> most) {
    return first_rows(open_split(data_, file, split), most).reference();
  };
  PreparedTask prepared;
  prepared.makes_rows = true;
  auto& trainer = prepared.trainer;
  trainer.processing_class = load_tokenizer(model_);
  const auto model = load_model(model_task_, model_, fresh_, changes_);
  trainer.model = model;
  if (quantization_.load_in_4bit)
    quantize_4bit(*model, {.nested = quantization_.use_bnb_nested_quant,
                           .device = process_device(args.use_cpu, args.local_process_index(),
                                                    GpuSharing::allowed)});
  trainer.train_dataset =
      rows(data_.train_file, splits_.dataset_train_split, data_.max_train_samples);
  if (args.do_eval)
    trainer.eval_dataset =
        rows(data_.validation_file, splits_.dataset_test_split, data_.max_eval_samples);
  // `gradus eval` has no training rows, but these trainers want some.
  if (!args.do_train) trainer.train_dataset = trainer.eval_dataset.single();
  auto adapter = lora_config(model_.adapter, "CAUSAL_LM");  // as in trl's ModelConfig
  if (adapter) adapter->base_model_name_or_path = model_.model_name_or_path;
  prepared.make_trainer = [this, adapter](TrainerOptions options) {
    return make(std::move(options), adapter);
  };
  return prepared;
}

}  // namespace gradus::tasks
