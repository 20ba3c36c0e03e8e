#include <cmath>

float scale() { return std::pow(SCALE, 1.0f); }
