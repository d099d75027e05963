#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/model_folder.h>
#include <gradus/models/pretrained_model.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "core/mapped_reads.h"
#include "models/load_report.h"

namespace gradus {

using torch::Tensor;
namespace fs = std::filesystem;

namespace {

std::string write_name(const WeightTable& table, const std::string& name,
                       WeightRule::Transform& transform) {
  for (const auto& rule : table.rules) {
    if (rule.use == WeightRule::Use::load) continue;
    if (auto rewritten = rewrite_name(name, rule.module, rule.file)) {
      transform = rule.transform;
      return *rewritten;
    }
  }
  return name;
}

std::string read_name(const WeightTable& table, const std::string& name,
                      WeightRule::Transform& transform) {
  for (const auto& rule : table.rules)
    if (auto rewritten = rewrite_name(name, rule.file, rule.module)) {
      transform = rule.transform;
      return *rewritten;
    }
  return name;
}

Tensor transformed(const Tensor& tensor, WeightRule::Transform transform) {
  return transform == WeightRule::Transform::transpose && tensor.dim() == 2 ? tensor.t() : tensor;
}

/// Of the first floating tensor, which for safetensors is the first by name: what `dtype="auto"`
/// finds in transformers.
std::optional<torch::Dtype> dtype_of_files(const fs::path& folder, const NamedTensors& tensors) {
  const bool by_name = fs::exists(folder / "model.safetensors") ||
                       fs::exists(folder / "model.safetensors.index.json");
  const std::pair<std::string, Tensor>* first = nullptr;
  for (const auto& entry : tensors) {
    if (!entry.second.is_floating_point() ||
        (first != nullptr && !(by_name && entry.first < first->first)))
      continue;
    first = &entry;
  }
  return first == nullptr ? std::nullopt : std::optional(first->second.scalar_type());
}

NamedTensors read_weight_files(const fs::path& folder) {
  if (const auto problem = weights_problem(folder))
    throw Error("G-MODEL-7", ErrorKind::model,
                fmt::format("cannot load the model in {}: {}", folder.string(), *problem),
                "Fetch the folder again, completely, or start from fresh weights with from_config "
                "/ --config_name.");
  return read_weights_folder(folder);
}

/// All names of the module, tied ones under each of their names.
std::vector<std::pair<std::string, Tensor>> all_tensors(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

bool is_ignored(const WeightTable& table, const std::string& name) {
  return std::any_of(table.ignored.begin(), table.ignored.end(), [&](const auto& pattern) {
    return rewrite_name(name, pattern, pattern).has_value();
  });
}

/// What the file holds, under the names of the modules.
class FileTensors {
 public:
  FileTensors(NamedTensors tensors, const WeightTable& table, const std::string& prefix,
              const std::unordered_map<std::string, Tensor>& known) {
    for (auto& [file_name, tensor] : tensors) {
      auto transform = WeightRule::Transform::none;
      auto name = read_name(table, file_name, transform);
      if (!known.count(name) && !prefix.empty()) {
        if (known.count(prefix + "." + name))
          name = prefix + "." + name;
        else if (name.rfind(prefix + ".", 0) == 0 && known.count(name.substr(prefix.size() + 1)))
          name = name.substr(prefix.size() + 1);
      }
      if (known.count(name))
        found.emplace(name, transformed(tensor, transform));
      else if (!is_ignored(table, name))
        unexpected.push_back(file_name);
    }
  }

  std::unordered_map<std::string, Tensor> found;
  std::vector<std::string> unexpected;
};

/// The module under a dotted name; null when there is none.
torch::nn::Module* module_at(torch::nn::Module& root, std::string_view path) {
  auto* module = &root;
  while (!path.empty()) {
    const auto dot = path.find('.');
    const auto children = module->named_children();
    const auto* child = children.find(std::string(path.substr(0, dot)));
    if (child == nullptr) return nullptr;
    module = child->get();
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return module;
}

/// Gives a tied tensor a place of its own where the file holds other values for it, as transformers
/// does. Says so unless the config agrees.
void untie_different(torch::nn::Module& root, const FileTensors& file,
                     const nlohmann::json& config) {
  std::unordered_map<const void*, std::pair<std::string, Tensor>>
      first;  // of each tensor that the file holds
  for (const auto& [name, tensor] : all_tensors(root)) {
    const auto found = file.found.find(name);
    if (found == file.found.end()) continue;
    const auto [source, is_first] =
        first.try_emplace(tensor.unsafeGetTensorImpl(), name, found->second);
    if (is_first || source->second.second.sizes() != found->second.sizes() ||
        torch::equal(source->second.second, found->second))
      continue;
    const auto dot = name.rfind('.');
    auto* owner =
        dot == std::string::npos ? nullptr : module_at(root, std::string_view(name).substr(0, dot));
    const auto own = torch::empty_like(tensor).requires_grad_(tensor.requires_grad());
    if (auto* linear = dynamic_cast<layers::Linear*>(owner))
      name.compare(dot, std::string::npos, ".bias") == 0 ? linear->tie_bias(own) : linear->tie(own);
    else if (auto* table = dynamic_cast<layers::Embedding*>(owner))
      table->tie(own);
    else
      continue;
    if (config.value("tie_word_embeddings", nlohmann::json(true)) != nlohmann::json(false))
      log_warning(fmt::format(
          "The model ties {} to {}, but the file holds different values for them, so they are not "
          "tied. Set tie_word_embeddings to false in config.json to silence this.",
          name, source->second.first));
  }
}

}  // namespace

std::optional<std::string> rewrite_name(std::string_view name, std::string_view from,
                                        std::string_view to) {
  std::vector<std::string_view> runs;
  // Matches by backtracking over the last `*`; names have few parts.
  const std::function<bool(std::string_view, std::string_view)> match =
      [&](std::string_view text, std::string_view pattern) {
        const auto star = pattern.find('*');
        if (star == std::string_view::npos) return text == pattern;
        if (text.substr(0, star) != pattern.substr(0, star)) return false;
        text.remove_prefix(star);
        for (size_t length = 0; length <= text.size(); ++length) {
          runs.push_back(text.substr(0, length));
          if (match(text.substr(length), pattern.substr(star + 1))) return true;
          runs.pop_back();
        }
        return false;
      };
  if (!match(name, from)) return std::nullopt;
  std::string result;
  size_t next = 0;
  for (const char letter : to)
    if (letter == '*' && next < runs.size())
      result += runs[next++];
    else
      result += letter;
  return result;
}

StateDict PreTrainedModel::state_dict() const {
  auto state = Model::state_dict();
  const auto& table = weight_table();
  if (table.rules.empty()) return state;
  StateDict renamed;
  for (const auto& item : state) {
    auto transform = WeightRule::Transform::none;
    const auto name = write_name(table, item.key(), transform);
    renamed.insert(name, transformed(item.value(), transform));
  }
  return renamed;
}

void PreTrainedModel::load_state_dict(const StateDict& state) {
  const auto& table = weight_table();
  if (table.rules.empty()) return Model::load_state_dict(state);
  StateDict renamed;
  for (const auto& item : state) {
    auto transform = WeightRule::Transform::none;
    const auto name = read_name(table, item.key(), transform);
    renamed.insert(name, transformed(item.value(), transform));
  }
  Model::load_state_dict(renamed);
}

LoadReport PreTrainedModel::load_weights(const fs::path& directory,
                                         const PretrainedOptions& options) {
  return read_mapped([&] {
    auto tensors = all_tensors(named_module());
    auto stored = read_weight_files(directory);
    const auto stored_dtype = dtype_of_files(directory, stored);
    const FileTensors file(std::move(stored), weight_table(), base_prefix_,
                           {tensors.begin(), tensors.end()});
    untie_different(named_module(), file, config_);
    tensors = all_tensors(named_module());
    LoadReport report;
    report.unexpected = file.unexpected;

    const auto dtype = options.dtype ? options.dtype : stored_dtype;
    const auto converted = [&](const Tensor& value) {
      const auto wanted = value.is_floating_point() && dtype ? *dtype : value.scalar_type();
      return value.to(torch::TensorOptions().dtype(wanted).device(options.device)).contiguous();
    };
    // A model that went on using the file would end by SIGBUS when somebody cuts it.
    const auto owned = [&](const Tensor& value) {
      const auto result = converted(value);
      return result.is_alias_of(value) ? result.clone() : result;
    };
    torch::NoGradGuard no_grad;
    std::unordered_set<const void*> loaded, wanting;
    std::vector<std::pair<std::string, Tensor>> without;
    for (auto [name, tensor] : tensors) {
      const auto found = file.found.find(name);
      const void* key = tensor.unsafeGetTensorImpl();
      if (found == file.found.end()) {
        without.emplace_back(name, tensor);
      } else if (found->second.sizes() != tensor.sizes()) {
        report.mismatched.push_back({name, found->second.sizes().vec(), tensor.sizes().vec()});
        wanting.insert(key);
      } else if (loaded.insert(key).second) {
        tensor.set_data(owned(found->second));
      }
    }
    for (auto& [name, tensor] : without)
      if (loaded.count(tensor.unsafeGetTensorImpl()) == 0 &&
          wanting.insert(tensor.unsafeGetTensorImpl()).second && !is_ignored(weight_table(), name))
        report.missing.push_back(name);

    tell_load_report(report, class_name_, directory, options);
    if (!wanting.empty()) {
      init_weights(Initializer(wanting));
      for (auto [name, tensor] : tensors)
        if (wanting.count(tensor.unsafeGetTensorImpl()) != 0) tensor.set_data(converted(tensor));
    }
    return report;
  });
}

void PreTrainedModel::save_pretrained(const fs::path& directory,
                                      const std::string& max_shard_size) const {
  ModelFolder(*this, {.max_shard_size = max_shard_size}).save(directory);
}

}  // namespace gradus
