#error "left out by cuda-minver"
