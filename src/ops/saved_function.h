#pragma once

#include <cstdint>

#include "base/activation.h"

namespace switchyard {

// The function of an MLP, kept by an operator for its backward. Context: libtorch's
// AutogradContext.
template <class Context>
void save_function(Context* ctx, const MlpFunction& function) {
  ctx->saved_data["activation"] = static_cast<int64_t>(function.activation);
  ctx->saved_data["is_gated"] = function.is_gated;
  ctx->saved_data["clamp"] = function.clamp;
  ctx->saved_data["offset"] = function.offset;
}

template <class Context>
MlpFunction saved_function(const Context* ctx) {
  const auto& saved = ctx->saved_data;
  return {static_cast<Activation>(saved.at("activation").toInt()), saved.at("is_gated").toBool(),
          saved.at("clamp").toDouble(), saved.at("offset").toDouble()};
}

}  // namespace switchyard
