#include <gradus/optim/adalomo.h>
#include <gradus/optim/factory.h>

#include "optim/saved_options.h"

namespace gradus {

std::shared_ptr<Optimizer> AdaLomo::from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs&) {
  return std::make_shared<AdaLomo>(std::move(groups), args.learning_rate);
}

AdaLomo::AdaLomo(std::vector<ParamGroupInit> groups, double lr, double weight_decay)
    : Adafactor(std::move(groups), {.lr = lr,
                                    .weight_decay = weight_decay,
                                    .scale_parameter = true,
                                    .relative_step = false}) {}

StateTree AdaLomo::group_options(size_t group) const {
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("eps", saved::tuple_of(AdafactorOptions{}.eps))
      .set("weight_decay", groups_[group].weight_decay)
      .set("clip_grad_norm", {})
      .set("clip_grad_value", {});
}

}  // namespace gradus
