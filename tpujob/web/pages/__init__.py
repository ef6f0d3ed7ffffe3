"""The status page. A page is a row in `routes.py`: path, template, loader. A loader asks `JobsApi` as its caller;
`frame.py` shows its answer as HTML, or as JSON where the address ends in `.json`. No rule of a job is here, and no
sentence about one: what a page says comes in fields of the API.
"""
