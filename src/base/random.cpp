#include "base/random.h"

#include <cmath>

namespace switchyard {
namespace {

// Natural logarithm of a positive normal double out of exactly rounded operations only: the C
// library's own picks other code, with other last bits, on processors with fused multiply-add.
double portable_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  // log(m) = 2 artanh((m - 1) / (m + 1)), with |ratio| < 0.172: 12 terms reach 1e-19.
  const double ratio = (mantissa - 1) / (mantissa + 1);
  const double square = ratio * ratio;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) {
    series = series * square + 1.0 / k;
  }
  return exponent * 0.69314718055994531 + 2 * ratio * series;
}

template <size_t size>
double polynomial(const std::array<double, size>& coefficients, double x) {
  double value = 0;
  for (size_t i = size; i-- > 0;) {
    value = value * x + coefficients[i];
  }
  return value;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t hash_name(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    static constexpr std::array<double, 8> kNumerator = {
        3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
        1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
        3.3430575583588128105e4, 2.5090809287301226727e3};
    static constexpr std::array<double, 8> kDenominator = {1.0,
                                                           4.2313330701600911252e1,
                                                           6.8718700749205790830e2,
                                                           5.3941960214247511077e3,
                                                           2.1213794301586595867e4,
                                                           3.9307895800092710610e4,
                                                           2.8729085735721942674e4,
                                                           5.2264952788528545610e3};
    const double r = 0.180625 - q * q;
    return q * polynomial(kNumerator, r) / polynomial(kDenominator, r);
  }
  double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  double value = 0;
  if (r <= 5) {
    static constexpr std::array<double, 8> kNumerator = {
        1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
        3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
        2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static constexpr std::array<double, 8> kDenominator = {1.0,
                                                           2.05319162663775882187e0,
                                                           1.67638483018380384940e0,
                                                           6.89767334985100004550e-1,
                                                           1.48103976427480074590e-1,
                                                           1.51986665636164571966e-2,
                                                           5.47593808499534494600e-4,
                                                           1.05075007164441684324e-9};
    r -= 1.6;
    value = polynomial(kNumerator, r) / polynomial(kDenominator, r);
  } else {
    static constexpr std::array<double, 8> kNumerator = {
        6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
        2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
        2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static constexpr std::array<double, 8> kDenominator = {1.0,
                                                           5.99832206555887937690e-1,
                                                           1.36929880922735805310e-1,
                                                           1.48753612908506148525e-2,
                                                           7.86869131145613259100e-4,
                                                           1.84631831751005468180e-5,
                                                           1.42151175831644588870e-7,
                                                           2.04426310338993978564e-15};
    r -= 5;
    value = polynomial(kNumerator, r) / polynomial(kDenominator, r);
  }
  return q < 0 ? -value : value;
}

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : RandomStream(seed, hash_name(name)) {}

uint64_t RandomStream::bits(uint64_t index) const {
  // One Philox block serves two neighbouring indices.
  const uint64_t block = index / 2;
  const auto words =
      philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                  static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                 {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  const size_t half = index % 2 * 2;
  return uint64_t{words[half + 1]} << 32 | words[half];
}

double RandomStream::uniform(uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double RandomStream::normal(uint64_t index) const {
  // The middle of each of 2^53 cells: never 0 or 1, where the quantile is infinite.
  return normal_quantile((static_cast<double>(bits(index) >> 12) + 0.5) * 0x1p-52);
}

uint64_t RandomStream::below(uint64_t index, uint64_t limit) const {
  __extension__ using uint128 = unsigned __int128;
  return static_cast<uint64_t>(uint128{bits(index)} * limit >> 64);
}

}  // namespace switchyard
