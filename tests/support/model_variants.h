#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "selfcheck/logical_tensors.h"
#include "support/small_model.h"

// Models of every kind, and layouts to compare them in with one rank, in fp64.
namespace switchyard {

struct Variant {
  const char* name;
  Config config;
};

const std::vector<Variant>& model_variants();
const Variant& variant_named(const std::string& name);

const std::vector<Layout>& model_layouts();
const Layout& layout_named(const std::string& name);

// Trains `base` in that layout, and collects losses, gradients and weights. With `removed` that
// site neither communicates nor scales.
LayoutRunSites run_model(const Config& base, const Layout& layout, LogicalTensors& result,
                         const std::string& removed = "",
                         std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace switchyard
