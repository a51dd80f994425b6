#include "nn/init.h"

#include <cmath>

namespace switchyard {

double output_init_std(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

}  // namespace switchyard
