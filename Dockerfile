# relatum in a container. CPU by default; for CUDA, choose PyTorch's index of CUDA wheels:
#   docker build -t relatum .
#   docker build -t relatum:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .
#   docker run --rm -v "$PWD:/data" relatum pretrain photos --out runs/photos        (add --gpus all for CUDA)
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY recipes ./recipes
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
# torch first, from its own index: the default index gives the CUDA build, which takes gigabytes. Its dependencies come
# with relatum's, from the default index: that of torch does not have every version in constraints.txt. Of torchvision,
# which `EXTRAS=timm` brings, only the build of torch's index fits; pip prefers it, because its version has a suffix.
RUN pip install --no-cache-dir --no-deps --constraint /wheels/constraints.txt --index-url "${TORCH_INDEX}" torch \
    && pip install --no-cache-dir --constraint /wheels/constraints.txt --extra-index-url "${TORCH_INDEX}" \
        "$(ls /wheels/relatum-*.whl)${EXTRAS:+[${EXTRAS}]}" \
    && rm -rf /wheels \
    && useradd --create-home --uid 1000 relatum
USER 1000
ENV RELATUM_DATA=/data/datasets \
    NUMBA_CACHE_DIR=/home/relatum/.cache/numba
WORKDIR /data
ENTRYPOINT ["relatum"]
CMD ["--help"]
