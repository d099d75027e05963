// processes_run [flags]: a small run for processes.py and sharding.py, alone or as one of several
// processes. The model has tied, frozen and unused parameters, blocks, and a layer that only some
// batches use.
//
// FAULT=RANK:STEP:HOW does something to one process after a step of its first start: throw, kill,
// stop (SIGSTOP), term (SIGTERM) or exit. ODD_RATE=RANK gives one process another learning rate.
// TRAIN_ROWS=N trains on N rows in place of 96, TEST_ROWS=N evaluates N in place of 53. STREAM=N
// trains on N rows that can only be read one after the other. Writes OUTPUT_DIR/result-RANK.json.
#include <gradus/gradus.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace {

struct PartsNet : gradus::Model {
  PartsNet() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(4, 8));
    tied = register_module("tied", torch::nn::Linear(8, 8));
    frozen = register_module("frozen", torch::nn::Linear(8, 8));
    sometimes = register_module("sometimes", torch::nn::Linear(8, 8));
    unused = register_module("unused", torch::nn::Linear(8, 8));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(torch::nn::Linear(8, 8));
    for (auto& parameter : blocks[1]->parameters()) parameter.set_requires_grad(false);
    last = register_module("last", torch::nn::Linear(8, 1));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  gradus::ModelOutput forward(const gradus::Batch& batch, const gradus::ForwardOptions&) override {
    auto h = torch::tanh(first->forward(batch["x"]));
    h = torch::tanh(tied->forward(torch::tanh(tied->forward(h)))) + frozen->forward(h);
    const auto rows = batch["kind"].nonzero().squeeze(1);
    if (rows.numel() > 0) h = h.index_add(0, rows, sometimes->forward(h.index_select(0, rows)));
    for (const auto& block : *blocks)
      h = h + 0.1 * torch::tanh(block->as<torch::nn::Linear>()->forward(h));
    const auto y = last->forward(h).squeeze(1);
    return {{"loss", torch::mse_loss(y, batch["labels"])}, {"logits", y}};
  }
  torch::nn::Linear first{nullptr}, tied{nullptr}, frozen{nullptr}, sometimes{nullptr},
      unused{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks{nullptr};
};

std::shared_ptr<gradus::Dataset> rows(int64_t count) {
  torch::manual_seed(7);
  const auto x = torch::randn({count, 4});
  // the first rows have none of the kind that uses the layer `sometimes`
  const auto kind = torch::arange(count).ge(6).logical_and(torch::arange(count).remainder(3).eq(0));
  return gradus::from_tensors({{"x", x}, {"kind", kind.to(torch::kLong)}, {"labels", x.sum(1)}});
}

struct Stream : gradus::IterableDataset {
  explicit Stream(std::shared_ptr<gradus::Dataset> rows) : rows(std::move(rows)) {}
  std::optional<gradus::Example> next() override {
    return at < rows->size() ? std::optional(rows->get(at++)) : std::nullopt;
  }
  void reset(int64_t) override { at = 0; }
  std::shared_ptr<gradus::Dataset> rows;
  int64_t at = 0;
};

void suffer(const std::string& how) {
  if (how == "throw") throw std::runtime_error("a bad row");
  if (how == "kill") ::raise(SIGKILL);
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "term") ::raise(SIGTERM);
  if (how == "exit") ::_exit(7);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

nlohmann::json numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kDouble).contiguous().flatten();
  return std::vector<double>(flat.const_data_ptr<double>(),
                             flat.const_data_ptr<double>() + flat.numel());
}

}  // namespace

int main(int argc, char** argv) try {
  auto args = gradus::parse_args(argc, argv,
                                 {.per_device_train_batch_size = 8,
                                  .num_train_epochs = 2,
                                  .learning_rate = 1e-2,
                                  .lr_scheduler_type = "cosine",
                                  .logging_steps = 3,
                                  .disable_tqdm = true,
                                  .report_to = "none",
                                  .use_cpu = true});
  const auto rank = args.process_index();
  if (variable("ODD_RATE") == std::to_string(rank)) args.learning_rate = 0.5;
  const auto fault = variable("FAULT");
  const bool is_first_start = variable("TORCHELASTIC_RESTART_COUNT").empty() ||
                              variable("TORCHELASTIC_RESTART_COUNT") == "0";
  const auto count = [](const char* name, int64_t otherwise) {
    const auto text = variable(name);
    return text.empty() ? otherwise : std::stoll(text);
  };
  const auto stream = variable("STREAM");
  const auto test = rows(count("TEST_ROWS", 53));
  gradus::DatasetRef data = rows(count("TRAIN_ROWS", 96));
  if (!stream.empty()) data = std::make_shared<Stream>(rows(std::stoll(stream)));
  gradus::Trainer trainer({.model = std::make_shared<PartsNet>(),
                           .args = args,
                           .train_dataset = data,
                           .eval_dataset = test});
  const auto interrupt = std::make_shared<gradus::InterruptCallback>();
  trainer.add_callback(interrupt);
  if (!fault.empty() && is_first_start && fault[0] == char('0' + rank)) {
    const auto step = std::stoll(fault.substr(2, fault.find(':', 2) - 2));
    trainer.on(gradus::Event::step_end,
               [=](const gradus::CallbackContext& at, gradus::TrainerControl&) {
                 if (at.state.global_step == step) suffer(fault.substr(fault.rfind(':') + 1));
               });
  }
  const auto output = trainer.train(gradus::Resume::last());
  if (interrupt->received() != 0) return 128 + interrupt->received();
  const auto predicted = trainer.predict(test);
  auto metrics = trainer.evaluate();
  nlohmann::json weights;
  for (const auto& item : trainer.model().named_parameters())
    weights[item.key()] = numbers(item.value().detach());
  const nlohmann::json result = {{"world", trainer.world_size()},
                                 {"eval_loss", metrics.at("eval_loss")},
                                 {"labels", numbers(predicted.label_ids)},
                                 {"predictions", numbers(predicted.predictions)},
                                 {"log_history", trainer.state().log_history},
                                 {"weights", weights}};
  gradus::write_file_atomically(*args.output_dir + "/result-" + std::to_string(rank) + ".json",
                                gradus::dump_json(result, 1));
  return 0;
} catch (const gradus::Error& error) {
  if (error.id() != "G-DIST-2" || !error.advice().empty()) std::cerr << error.what() << std::endl;
  return 1;
} catch (const std::exception& error) {
  std::cerr << "processes_run: " << error.what() << std::endl;
  return 3;
}
