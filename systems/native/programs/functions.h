// Sigmoid and tanh in a form that compilers vectorize.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

// e^x within 2e-7, relatively, from -80 to 80, beyond which it is constant; Cephes' polynomial.
inline float exponential(float x) {
  x = std::min(std::max(x, -80.0f), 80.0f);
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return (p * r * r + r + 1.0f) * power;
}

// 1 / x of a normal x > 0, within 2e-7, relatively: three Newton steps take a fourth of the time of
// a division of 16 numbers.
inline float reciprocal(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = 0x7ef311c7 - bits;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  for (int step = 0; step < 3; ++step) y *= 2.0f - x * y;
  return y;
}

inline float sigmoid(float x) { return reciprocal(1.0f + exponential(-x)); }
inline float tanh_of(float x) { return 1.0f - 2.0f * reciprocal(1.0f + exponential(2.0f * x)); }

// Derivatives, given the values of the functions.
inline float through_sigmoid(float y) { return y * (1.0f - y); }
inline float through_tanh(float y) { return 1.0f - y * y; }
