#include <gradus/functional/params.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>

#include <map>

namespace gradus::functional {
namespace {

void flatten(const FlaxTree& tree, const std::string& path,
             std::map<std::string, torch::Tensor>& out) {
  if (tree.is_tensor()) {
    out.emplace(path, tree.tensor());
    return;
  }
  for (const auto& [key, value] : tree.entries())
    flatten(value, path.empty() ? key : path + "." + key, out);
}

/// The first few of a list: "a, b, c and 5 more".
std::string shortened(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const auto shown = std::min(names.size(), kShown);
  auto text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "));
  return names.size() > kShown ? text + fmt::format(" and {} more", names.size() - kShown) : text;
}

std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

}  // namespace

Params::Params(std::vector<std::string> names, std::vector<torch::Tensor> values)
    : names_(std::make_shared<const std::vector<std::string>>(std::move(names))),
      values_(std::move(values)) {
  if (names_->size() != values_.size())
    throw Error("G-FN-3", ErrorKind::training,
                fmt::format("{} tensors were given for {} names", values_.size(), names_->size()),
                "Give one tensor for every name.");
}

const torch::Tensor* Params::find(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if ((*names_)[i] == name) return &values_[i];
  return nullptr;
}

const torch::Tensor& Params::operator[](std::string_view name) const {
  if (const auto* value = find(name)) return *value;
  throw Error("G-FN-3", ErrorKind::training,
              fmt::format("there is no tensor '{}'; there are {}", name,
                          empty() ? "none" : shortened(names())),
              "Check the name against the model's parameters.");
}

Params Params::with(std::vector<torch::Tensor> values) const {
  if (values.size() != size())
    throw Error("G-FN-3", ErrorKind::training,
                fmt::format("{} tensors were given for {} names", values.size(), size()),
                "Give one tensor for every name.");
  auto result = *this;
  result.values_ = std::move(values);
  return result;
}

FlaxTree to_flax(const Params& params) {
  auto tree = FlaxTree::dict();
  for (size_t i = 0; i < params.size(); ++i) {
    auto* node = &tree;
    std::string_view rest = params.names()[i];
    for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      const auto part = rest.substr(0, dot);
      const auto* inner = node->find(part);
      node = inner ? const_cast<FlaxTree*>(inner) : &node->set(std::string(part), FlaxTree::dict());
      rest.remove_prefix(dot + 1);
    }
    node->set(std::string(rest), params.values()[i]);
  }
  return tree;
}

Params from_flax(const FlaxTree& tree, const Params& like, const std::string& what) {
  std::map<std::string, torch::Tensor> found;
  flatten(tree, "", found);
  std::vector<std::string> missing, shapes, unexpected;
  std::vector<torch::Tensor> values;
  for (size_t i = 0; i < like.size(); ++i) {
    const auto& name = like.names()[i];
    const auto& target = like.values()[i];
    const auto entry = found.extract(name);
    if (entry.empty())
      missing.push_back(name);
    else if (entry.mapped().sizes() != target.sizes())
      shapes.push_back(fmt::format("{} is {}, expected {}", name, shape_text(entry.mapped()),
                                   shape_text(target)));
    else
      values.push_back(entry.mapped().to(target.options()));
  }
  for (const auto& [name, tensor] : found) unexpected.push_back(name);
  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back("missing: " + shortened(missing));
  if (!unexpected.empty()) problems.push_back("not expected: " + shortened(unexpected));
  if (!shapes.empty()) problems.push_back("other shapes: " + shortened(shapes));
  if (problems.empty()) return like.with(std::move(values));
  throw Error("G-FN-4", ErrorKind::checkpoint,
              fmt::format("{} does not fit the model: {}", what, fmt::join(problems, "; ")),
              "Build the model and the optimizer as they were when this was saved.");
}

}  // namespace gradus::functional
