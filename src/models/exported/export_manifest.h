#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// exported.json: what tools/export_model.py says about the folder it wrote.
struct ExportManifest {
  /// A size that a batch may choose.
  struct Bounds {
    int64_t least = 1, most = 1;
  };
  /// A size of an input: a number, or the name of a dimension.
  struct Size {
    std::string name;  ///< empty for a fixed size
    int64_t fixed = 0;
  };
  /// An input of the steps that comes from the batch.
  struct Input {
    std::string name;
    torch::Dtype dtype = torch::kLong;
    std::vector<Size> shape;
    bool is_label = false;
    std::optional<double> fill = std::nullopt;      ///< stands for an input that the batch lacks
    std::optional<int64_t> below = std::nullopt;    ///< whole numbers are from 0 to below this,
    std::optional<int64_t> ignored = std::nullopt;  ///< or this one
  };
  /// A parameter or a buffer.
  struct Weight {
    std::string name;
    std::vector<int64_t> shape;
    torch::Dtype dtype = torch::kFloat;
    bool trains = false;
  };
  /// A compiled step.
  struct Step {
    std::string file = {};
    uint64_t bytes = 0;
    std::string checksum = {};
    std::vector<std::string> outputs = {};    ///< of the model, in their order
    std::vector<std::string> gradients = {};  ///< parameters; of the training step
    std::vector<std::string> buffers = {};    ///< that the training step updates
  };
  /// The steps for a device.
  struct Package {
    std::string device = {}, torch_version = {};
    std::optional<std::string> cpu_capability = std::nullopt;
    std::optional<Step> train = std::nullopt, forward = std::nullopt;
  };

  std::string class_name, task, command, precision, main_input_name;
  std::vector<Input> inputs;
  std::map<std::string, Bounds> dims;
  std::vector<Weight> parameters, buffers;
  std::vector<std::pair<std::string, std::string>> tied;  ///< a further name, and the first one
  std::vector<std::string> layer_norms, embeddings, ignored_outputs;
  bool accepts_loss_kwargs = false, takes_items = false, shifts_labels = false,
       counts_shifted_labels = false, dropout = false, gradient_checkpointing = false;
  std::vector<Package> packages;
  nlohmann::json text;  ///< the file itself

  /// Reads exported.json, or another file of its kind, of a folder. Throws `Error` G-EXPORT-1.
  static ExportManifest read(const std::filesystem::path& folder,
                             const std::string& file = "exported.json");

  /// The names of all inputs.
  std::vector<std::string> input_names() const;
  /// The names of the inputs that are labels.
  std::vector<std::string> label_names() const;

  /// The packages for a device; null when there are none.
  const Package* package_for(const std::string& device) const;
  /// The command that exports the same model with `change`, for advice.
  std::string command_with(const std::string& change) const;
};

}  // namespace gradus
