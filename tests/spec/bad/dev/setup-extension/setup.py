from setuptools import setup

setup(ext_modules=[])
