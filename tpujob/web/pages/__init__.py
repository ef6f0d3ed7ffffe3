"""The status page: one module for each page, all in the frame of `frame.py`. A page asks `JobsApi` as its caller, and
shows the answer as HTML, or as JSON where its address ends in `.json`. No rule of a job is here, and no sentence about
one: what is said comes in fields of the API.
"""
