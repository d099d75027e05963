// The Flax example of BigBird on natural questions: start, end and kind of an answer.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/formats/flax_msgpack.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/trainers/natural_questions.h>

#include <cmath>
#include <limits>

#include "tasks/functional_checkpoints.h"
#include "tasks/natural_questions_run.h"
#include "tasks/registry.h"
#include "tasks/text_data.h"
#include "text/characters.h"

namespace gradus {
namespace tasks {
namespace {

namespace fs = std::filesystem;
namespace nq = gradus::natural_questions;

struct NaturalQuestionsFlags {
  int64_t block_size = 128;
  int64_t num_random_blocks = 3;
  int64_t max_length = 4096;
  int64_t doc_stride = 2048;
  double drop_null = 0.6;
  int64_t preparation_seed = 42;
  bool label_every_part = false;
};

constexpr OptionRow<NaturalQuestionsFlags> kNaturalQuestionsRows[] = {
    {&NaturalQuestionsFlags::block_size, "block_size", Group::model, at_least(1),
     "Tokens of a block of BigBird's sparse attention."},
    {&NaturalQuestionsFlags::num_random_blocks, "num_random_blocks", Group::model, at_least(0),
     "Blocks that each block sees at random."},
    {&NaturalQuestionsFlags::max_length, "max_length", Group::data, at_least(8),
     "Tokens of a row: the question and a part of the document. All rows are padded to it."},
    {&NaturalQuestionsFlags::doc_stride, "doc_stride", Group::data, at_least(0),
     "The parts of a document begin max_length - doc_stride tokens apart."},
    {&NaturalQuestionsFlags::drop_null, "drop_null", Group::data, within(0.0, 1.0),
     "Share of the parts without an answer that are left out.", Origin::gradus},
    {&NaturalQuestionsFlags::preparation_seed, "preparation_seed", Group::data, at_least(0),
     "Seed of the draw of these parts.", Origin::gradus},
    {&NaturalQuestionsFlags::label_every_part, "label_every_part", Group::data, any_value(),
     "Look for the answer in every part of a document, not only in the first ones.",
     Origin::gradus},
};

[[noreturn]] void refuse_run(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-18", ErrorKind::usage, message, advice);
}

/// Options of the Trainer that the functional trainer does not have.
constexpr const char* kOptionsOfTheTrainer =
    "activation_memory_budget adam_beta1 adam_beta2 adam_epsilon auto_find_batch_size bf16 "
    "bf16_full_eval deepspeed "
    "eval_on_start eval_steps eval_strategy fp16 fp16_full_eval fsdp gradient_accumulation_steps "
    "gradient_checkpointing label_smoothing_factor load_best_model_at_end logging_first_step "
    "logging_strategy lr_scheduler_kwargs lr_scheduler_type max_grad_norm metric_for_best_model "
    "neftune_noise_alpha optim optim_args save_only_model save_total_limit "
    "spike_action train_sampling_strategy zero_stage";

void check_options_of_the_trainer(const TrainingArguments& args, const ModelFlags& model) {
  const auto refuse = [](const std::string& name) {
    refuse_run("natural-questions trains with the functional trainer, which has no --" + name,
               "Leave it out: what the run does is what the Flax example does.");
  };
  const auto given = args.to_dict(), usual = TrainingArguments().to_dict();
  for (const auto& name : text::words_of(kOptionsOfTheTrainer))
    if (given.at(name) != usual.at(name)) refuse(name);
  if (args.save_strategy != "steps" && args.save_strategy != "no")
    refuse("save_strategy " + args.save_strategy);
  if (model.adapter.use_peft) refuse("use_peft");
}

bool is_prepared(const Split& split) {
  const auto names = split.column_names();
  return std::find(names.begin(), names.end(), "input_ids") != names.end();
}

/// Rows of the example's own form are read as they are, so a wrong one is looked for here.
void check_prepared_rows(const Dataset& rows, int64_t embeddings, const std::string& where) {
  for (int64_t i = 0; i < rows.size(); ++i) {
    const auto row = rows.get(i);
    const auto place = fmt::format("{}, row {}", where, i);
    for (const auto* column : {"start_token", "end_token", "category", "input_ids"}) {
      const auto* cell = row.find(column);
      const bool is_list = std::string_view(column) == "input_ids";
      const bool fits = cell != nullptr && (is_list ? cell->is_ints() : cell->is_int());
      if (!fits)
        throw Error("G-TASK-11", ErrorKind::data,
                    fmt::format("{}: '{}' is {}, expected {}", place, column,
                                cell == nullptr ? "missing" : cell->type_name(),
                                is_list ? "a list of whole numbers" : "a whole number"),
                    "Prepared rows have the columns input_ids, start_token, end_token and "
                    "category, as the example writes them.");
    }
    check_ids(row.at("input_ids").ints(), embeddings, place);
  }
}

class NaturalQuestions : public Task {
 public:
  std::string name() const override { return "natural-questions"; }
  std::string trainer() const override { return "functional::Trainer"; }
  void add_options(OptionSet& options) override {
    tasks::add_options(options, model_);
    tasks::add_options(options, fresh_);
    tasks::add_options(options, data_);
    options.add(flags_, std::span<const OptionRow<NaturalQuestionsFlags>>(kNaturalQuestionsRows));
  }

  void check(const TrainingArguments& args) const override {
    check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train, .tokenizer = true});
    check_options_of_the_trainer(args, model_);
    if (args.do_predict)
      refuse_run("natural-questions has no --do_predict",
                 "--do_eval writes what the model answers to eval_predictions.json.");
    check_data_flags(args, data_, {}, /*splits_train=*/false);
    if (args.do_train && !data_.validation_file && !data_.dataset_name)
      refuse_run("natural-questions has no --validation_file",
                 "The example evaluates whenever it logs; give data for it.");
    if (flags_.doc_stride >= flags_.max_length)
      refuse_run(fmt::format("--doc_stride {} is not below --max_length {}", flags_.doc_stride,
                             flags_.max_length),
                 "Parts of a document must begin behind each other.");
    if (args.num_train_epochs != std::floor(args.num_train_epochs))
      refuse_run(fmt::format("--num_train_epochs {}: the functional trainer takes whole epochs",
                             args.num_train_epochs),
                 "Give a whole number, or --max_steps.");
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto save_dir = arguments().as<NaturalQuestionsArguments>().save_dir;
    if (save_dir.empty() || save_dir.find('/') != std::string::npos)
      refuse_run(fmt::format("--save_dir '{}' is not the beginning of a name", save_dir),
                 "Checkpoints lie in --output_dir; --save_dir is the first part of their names.");
    NaturalQuestionsRun run;
    run.args = args;
    run.max_length = flags_.max_length;
    if (args.do_train) run.checkpoint = checkpoint_to_resume(args, save_dir);
    run.tokenizer = load_tokenizer(model_);
    run.model = load();
    if (args.do_train)
      run.train = rows_of_split(
          first_rows(open_split(data_, data_.train_file, "train"), data_.max_train_samples),
          "train", run);
    const auto validation =
        first_rows(open_split(data_, data_.validation_file, "validation"), data_.max_eval_samples);
    run.validation = rows_of_split(validation, "validation", run);
    run.where = validation.where;
    if (!is_prepared(validation)) run.questions = validation.rows;
    run.functional_args = functional_args(args, run.train ? run.train->size() : 0);
    if (run.checkpoint) take_over(run.functional_args, *run.checkpoint);
    PreparedTask prepared;
    prepared.run = [run](const std::vector<CallbackHandle>& callbacks) {
      return run_natural_questions(run, callbacks);
    };
    return prepared;
  }

 private:
  /// From a folder of weights, from a checkpoint of the functional trainer, or fresh.
  std::shared_ptr<PreTrainedModel> load() const {
    const nlohmann::json changes = {{"architectures", {"BigBirdForNaturalQuestions"}},
                                    {"block_size", flags_.block_size},
                                    {"num_random_blocks", flags_.num_random_blocks}};
    const auto folder = expand_user(model_.model_name_or_path.value_or(""));
    const auto flax = folder / "flax_model.msgpack";
    std::error_code ignored;
    if (!model_.model_name_or_path || !fs::exists(flax, ignored) || !weights_problem(folder))
      return load_model(ModelTask::question_answering, model_, fresh_, changes);
    auto config = load_config(model_, fresh_);
    config.update(changes);
    const auto model = model_from_config(ModelTask::question_answering, config);
    const auto function = natural_questions_function(model);
    const auto layout = functional::FlaxLayout::of(model->named_module());
    const auto own = function.params();
    function.store(layout.loaded(
        functional::from_flax(read_flax_msgpack(flax), layout.stored(own), flax.string()), own));
    return model;
  }

  functional::Args functional_args(const TrainingArguments& args, int64_t rows) {
    const auto& own = arguments().as<NaturalQuestionsArguments>();
    const auto batch = args.per_device_train_batch_size * args.world_size();
    const auto steps = rows / batch * int64_t(args.num_train_epochs);
    functional::Args all;
    all.model_id = model_.model_name_or_path.value_or("");
    all.logging_steps = args.logging_steps.steps(steps);
    all.save_steps = args.save_strategy == "no" ? std::numeric_limits<int64_t>::max()
                                                : args.save_steps.steps(steps);
    all.block_size = flags_.block_size;
    all.num_random_blocks = flags_.num_random_blocks;
    all.batch_size_per_device = args.per_device_train_batch_size;
    all.max_epochs = int64_t(args.num_train_epochs);
    all.lr = args.learning_rate;
    all.init_lr = own.init_lr;
    all.warmup_steps = args.warmup_steps.steps(steps);
    all.weight_decay = args.weight_decay;
    all.save_dir = own.save_dir;
    all.base_dir = *args.output_dir;
    all.tr_data_path = data_.train_file.value_or("");
    all.val_data_path = data_.validation_file.value_or("");
    return all;
  }

  /// A resumed run has the settings of its checkpoint, as in the example.
  static void take_over(functional::Args& args, const fs::path& checkpoint) {
    const auto file = checkpoint / "args.json";
    if (!fs::exists(file)) return;  // written by Flax
    auto saved = functional::args_from_json(read_json(file), file.string());
    const auto given = to_json(args), former = to_json(saved);
    for (const char* name : {"logging_steps", "save_steps", "batch_size_per_device", "max_epochs",
                             "lr", "init_lr", "warmup_steps", "weight_decay"})
      if (given[name] != former[name])
        log_warning(fmt::format("{} is {} as in the checkpoint {}, not {}", name,
                                former[name].dump(), checkpoint.string(), given[name].dump()));
    for (const char* name : {"block_size", "num_random_blocks"})
      if (given[name] != former[name])
        refuse_run(fmt::format("--{} is {}, but {} in the checkpoint {}", name, given[name].dump(),
                               former[name].dump(), checkpoint.string()),
                   "Resume with the same attention.");
    saved.base_dir = args.base_dir;
    saved.tr_data_path = args.tr_data_path;
    saved.val_data_path = args.val_data_path;
    args = std::move(saved);
  }

  /// Rows for the model; a file of the example's own form has them already.
  std::shared_ptr<const Dataset> rows_of_split(const Split& split, const char* name,
                                               const NaturalQuestionsRun& run) const {
    if (!split)
      throw Error("G-TASK-9", ErrorKind::usage,
                  fmt::format("{} has no split {}", data_.dataset_name.value_or(""), name),
                  "Give --train_file and --validation_file in its place.");
    if (is_prepared(split))
      check_prepared_rows(*split.rows, embedding_rows(*run.model), split.where);
    const auto rows = is_prepared(split) ? split.rows : prepared_rows(split, run);
    const auto batch = run.args.per_device_train_batch_size * run.args.world_size();
    if (rows->size() < batch)
      throw Error("G-TASK-10", ErrorKind::data,
                  fmt::format("{} leaves {} rows, fewer than one batch of {}", split.where,
                              rows->size(), batch),
                  "Give more questions with an answer, or a smaller --per_device_train_batch_size; "
                  "a partial batch is left out.");
    return rows;
  }

  std::shared_ptr<const Dataset> prepared_rows(const Split& split,
                                               const NaturalQuestionsRun& run) const {
    const nq::Options options{.max_length = flags_.max_length,
                              .doc_stride = flags_.doc_stride,
                              .label_every_part = flags_.label_every_part};
    const auto make = [rows_of = nq::row_maker(run.tokenizer, options, split.where),
                       ids = embedding_rows(*run.model),
                       where = split.where](std::vector<Example> questions) {
      auto rows = rows_of(std::move(questions));
      for (const auto& row : rows) check_ids(row.at("input_ids").ints(), ids, where);
      return rows;
    };
    const auto settings =
        fmt::format("{} {} {}", flags_.max_length, flags_.doc_stride, flags_.label_every_part);
    const auto all = prepare_split(split, make,
                                   {.task = name(),
                                    .settings = settings,
                                    .wanted = "at least one question with an answer",
                                    .batch_size = 100},
                                   model_, data_, !run.args.disable_tqdm.value_or(false));
    return nq::without_null_rows(all.rows, flags_.drop_null, flags_.preparation_seed);
  }

  ModelFlags model_;
  FreshModelFlags fresh_;
  DataFlags data_;
  NaturalQuestionsFlags flags_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_natural_questions() {
  return std::make_unique<tasks::NaturalQuestions>();
}

}  // namespace gradus
