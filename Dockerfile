# What the README's two commands need, and both of them: an image whose build compiles the GPU backends, and whose run
# encodes sentences and runs the tests.
#
#   docker build -t sparsek . && docker run --rm --gpus all sparsek
#
# It needs no GPU to build, and runs without one on the CPU backends (leave --gpus out).
ARG CUDA=12.8.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04

RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ git python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH

WORKDIR /opt/sparsek
COPY . .
# The extras of both commands at once, so that sparsek is compiled once. PARALLEL bounds memory: a kernel takes a few GB.
ARG PARALLEL=4
RUN SPARSEK_CUDA=ON CMAKE_BUILD_PARALLEL_LEVEL=${PARALLEL} pip install --no-cache-dir ".[examples,test]"

CMD ["sh", "-c", "python -m sparsek info && python examples/encode.py && pytest"]
