// The C++ side of functional_test.py.
//
//   functional_tool copy IN OUT CHUNK     reads a Flax file and writes it again, arrays above CHUNK
//   bytes in pieces functional_tool run FOLDER [STOP]     trains from FOLDER/init.msgpack on
//   FOLDER/data.msgpack; with STOP it ends after that step.
//                                         Writes trace.msgpack (loss and parameters of every step)
//                                         and the checkpoint "last"
//   functional_tool resume FOLDER FROM    the same from the checkpoint FOLDER/FROM on
#include <gradus/core/error.h>
#include <gradus/functional/trainer.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdio>
#include <string>

using namespace gradus;
namespace fn = gradus::functional;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSteps = 60, kWarmup = 10;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("fc1", fc1);
    register_module("norm", norm);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc2->forward(torch::tanh(norm->forward(fc1->forward(x))));
  }
  torch::nn::Linear fc1{6, 16}, fc2{16, 2};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
};
TORCH_MODULE(Net);

void train(const fs::path& folder, int64_t stop, std::optional<fs::path> checkpoint) {
  const auto data_tree = read_flax_msgpack(folder / "data.msgpack");
  const auto data =
      from_tensors({{"x", data_tree.at("x").tensor()}, {"y", data_tree.at("y").tensor()}});
  const auto model =
      wrap(Net(), [](NetImpl& net, const Batch& batch) { return net.forward(batch["x"]); });
  model.store(
      fn::from_flax(read_flax_msgpack(folder / "init.msgpack"), model.params(), "init.msgpack"));

  auto trace = FlaxTree::dict();
  const fn::Args args{.logging_steps = 1000,
                      .save_steps = 1000,
                      .batch_size_per_device = 8,
                      .max_epochs = 5,
                      .lr = 0.02,
                      .init_lr = 1e-3,
                      .warmup_steps = kWarmup,
                      .weight_decay = 0.05};
  const auto step = [&](const fn::TrainState& state, fn::Key key, const Batch& batch) {
    auto result = fn::train_step(state, key, batch);
    auto& entry = trace.set(std::to_string(state.step), FlaxTree::dict());
    entry.set("loss", result.metrics.at("loss"));
    entry.set("params", fn::to_flax(result.state.params));
    return result;
  };
  fn::Trainer trainer(
      {.args = args,
       .train_step_fn = step,
       .should_stop = [stop](const fn::TrainState& state) { return state.step == stop; },
       .show_progress = false});
  const auto tx = fn::chain(fn::clip_by_global_norm(0.5), fn::build_tx(args, kSteps));
  const auto loss_fn = [](const torch::Tensor& prediction, const Batch& batch) {
    return torch::mse_loss(prediction, batch["y"]);
  };
  auto state =
      trainer.create_state(model, tx, kSteps, {.loss_fn = loss_fn, .ckpt_dir = checkpoint});
  state = trainer.train(state, data, data);
  write_flax_msgpack(folder / "trace.msgpack", trace);
  trainer.save_checkpoint(folder / "last", state);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "copy")
      write_flax_msgpack(words[2], read_flax_msgpack(words[1]),
                         {.max_chunk_size = std::stoll(words[3])});
    else if (words.size() >= 2 && words[0] == "run")
      train(words[1], words.size() > 2 ? std::stoll(words[2]) : kSteps, std::nullopt);
    else if (words.size() == 3 && words[0] == "resume")
      train(words[1], kSteps, fs::path(words[1]) / words[2]);
    else
      return 2;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
