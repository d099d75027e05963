#pragma once

#include <gradus/kernels/form.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <ostream>
#include <string>
#include <vector>

/// Where and in which dtype a test runs. On the CPU the operations run with their own backward over
/// the plain forms, on a GPU with the kernels.
struct Setting {
  torch::DeviceType device;
  torch::ScalarType dtype;
};

inline std::string setting_name(const testing::TestParamInfo<Setting>& info) {
  return info.param.dtype == torch::kFloat  ? "float32"
         : info.param.dtype == torch::kHalf ? "float16"
                                            : "bfloat16";
}
inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.dtype << " on " << torch::Device(setting.device);
}

/// How far a result may lie from one computed in float64: ‖got − wanted‖ / ‖wanted‖.
inline double allowed(torch::ScalarType dtype) {
  return dtype == torch::kFloat ? 3e-6 : dtype == torch::kHalf ? 2e-3 : 1.2e-2;
}

inline void expect_close(const torch::Tensor& got, const torch::Tensor& wanted, double limit,
                         const std::string& what, double floor = 1e-12) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  const auto reference = wanted.detach().to(torch::kCPU).to(torch::kDouble);
  const auto difference =
      (got.detach().to(torch::kCPU).to(torch::kDouble) - reference).norm().item<double>();
  const auto size = reference.norm().item<double>();
  EXPECT_LE(difference, limit * size + floor)
      << what << ": a difference of " << difference << " in " << size;
}

class KernelTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (GetParam().device == torch::kCUDA &&
        !(torch::cuda::is_available() && gradus::kernels::have_cuda_kernels()))
      GTEST_SKIP() << "no GPU here, or built without GRADUS_CUDA";
    before_ = gradus::kernels::set_form(GetParam().device == torch::kCUDA
                                            ? gradus::kernels::Form::automatic
                                            : gradus::kernels::Form::fused);
    torch::manual_seed(7);
  }
  void TearDown() override { gradus::kernels::set_form(before_); }

  bool on_gpu() const { return GetParam().device == torch::kCUDA; }
  torch::ScalarType dtype() const { return GetParam().dtype; }
  double limit() const { return allowed(dtype()); }
  /// Values that the dtype holds exactly, as a leaf on the device.
  torch::Tensor leaf(torch::IntArrayRef sizes, double scale = 1.0, double shift = 0.0) const {
    return (torch::randn(sizes) * scale + shift)
        .to(dtype())
        .to(GetParam().device)
        .requires_grad_(true);
  }
  /// The same values in float64 on the CPU, as a leaf of their own.
  static torch::Tensor wide(const torch::Tensor& x) {
    return x.detach().to(torch::kCPU).to(torch::kDouble).requires_grad_(true);
  }
  torch::Tensor number(double value) const {
    return torch::full({}, value, torch::dtype(torch::kFloat).device(GetParam().device));
  }

 private:
  gradus::kernels::Form before_ = gradus::kernels::Form::automatic;
};
